//! What was done to locks, written down as it happens and judged afterwards.
//!
//! Any lock can be judged: it is made a [`Lock`], used through a [`Diary`] that writes down every call, and the files
//! are read back as a [`History`] that [`checks`] look at. What is written down is less than what happened: a claim
//! starts after the grant was returned and ends before the release is called, so an overlap found is a real one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a checker fails its test by panicking"
)]

pub mod checks;
pub mod claims;
pub mod diary;
pub mod event;
pub mod lock;
pub mod owners;
mod ranges;
#[cfg(test)]
mod sample;
pub mod timeline;

pub use checks::{Bounds, Violation};
pub use claims::{Attempt, Claim, History};
pub use diary::{Diary, Recorder};
pub use event::{Event, Share, Wanted, What};
pub use lock::{Failure, Hold, Lock, Place};
