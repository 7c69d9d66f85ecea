//! What checks the lock can fail itself, and what a user gets wrong is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a test fails by panicking"
)]

mod bad_input;
mod checker;
mod layers;
mod model_server;
mod proxy;
mod secrets;
