//! Several processes and one server: what they promise each other, and what goes over the wire.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a test fails by panicking"
)]

mod between_processes;
mod gathered;
mod interop;
mod late_tasks;
mod wire;
