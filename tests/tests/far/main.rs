//! Servers that are far away, or slow to connect to: everything works at every distance of the table in docs/topologies.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod distances;
mod places;
mod recovery;
mod short;
