//! Servers that are far away, or slow to connect to: everything works at all distances of the table in docs/topologies.md.

mod distances;
mod places;
mod recovery;
mod short;
