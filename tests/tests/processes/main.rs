//! Several processes and one server: mutual exclusion, progress, and the traffic on the wire.

mod at_least;
mod between_processes;
mod blocking;
mod burst;
mod gathered;
mod interop;
mod late_tasks;
mod several_keys;
mod versions;
mod wire;
