//! Telemetry as its users read it: events, spans, counts and metrics.

mod docs;
mod events;
mod metrics;
mod outages;
mod spans;
mod stats;
