//! Several processes and one server: what they promise each other, and what goes over the wire.

mod at_least;
mod between_processes;
mod blocking;
mod burst;
mod gathered;
mod interop;
mod late_tasks;
mod several_keys;
mod wire;
