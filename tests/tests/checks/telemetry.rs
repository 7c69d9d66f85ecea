//! What the locks tell: events, spans, numbers and metrics, each as its user reads it.

mod docs;
mod events;
mod metrics;
mod outages;
mod spans;
mod stats;
