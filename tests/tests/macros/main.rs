//! The attribute and the derive macro.

#![warn(clippy::unseparated_literal_suffix)]

mod behaviour;
mod futures;
mod hygiene;
mod proxies;
mod shapes;
