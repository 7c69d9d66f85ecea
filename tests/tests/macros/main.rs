//! The attribute and the derive.

mod behaviour;
mod futures;
mod hygiene;
mod proxies;
mod shapes;
