//! The attribute and the derive.

#![warn(clippy::unseparated_literal_suffix)]

mod behaviour;
mod futures;
mod hygiene;
mod proxies;
mod shapes;
