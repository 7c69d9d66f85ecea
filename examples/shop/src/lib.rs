//! A shop as a service: axum, a database, and locks.
//!
//! `cargo run --release -p shop` serves on port 3000, with SQLite in a temporary file and with locks in memory. Open `/` to see
//! the locks at work. Several instances share a database by `DATABASE_URL` (Postgres), and locks by `REDIS_URL`.
//! `cargo run --release -p shop --bin load` has two instances sell out under load, and kills one of them.
//!
//! | what | where | how it is locked |
//! |---|---|---|
//! | flash sale: `POST /items/{id}/buy` | `sale.rs` | one lock per item; the fencing token guards the stock |
//! | payment: `POST /orders/{id}/pay` | `payment.rs` | one lock per order; the fencing token guards the order |
//! | default address: `PUT /users/{id}/default-address` | `address.rs` | one lock per user, on the handler itself |
//! | nightly report: a background task | `nightly_report.rs` | one lock per night; if it is busy, another instance writes it |
//!
//! With `--features otel` it sends traces to an OpenTelemetry collector.
//!
//! What callers learn when a lock could not be acquired is in [`LockProblem`]. The order in which the service stops is in [`serve`].

mod address;
mod database;
mod day;
mod failure;
mod fence;
mod live;
mod lock_problem;
mod nightly_report;
mod payment;
mod problem;
mod routes;
mod sale;
mod serve;
mod settings;
mod shop;
mod telemetry;
#[cfg(feature = "otel")]
mod traces;
mod unlocked;

pub use database::{Books, Database};
pub use failure::Failure;
pub use lock_problem::LockProblem;
pub use nightly_report::Night;
pub use payment::Payment;
pub use problem::Problem;
pub use routes::{App, router};
pub use sale::Receipt;
pub use serve::{serve, stop_signal};
pub use settings::Settings;
pub use shop::Shop;

/// Why the service can't start; the operator reads its text.
pub type StartFailure = Box<dyn std::error::Error + Send + Sync>;
