//! Records what is done to locks, and checks it afterwards.
//!
//! Any lock can be checked: implement [`Lock`] for it, use it through a [`Diary`], which records every call, and read the
//! files back as a [`History`] for the [`checks`]. The record never exaggerates: a claim starts after the grant was
//! returned and ends before the release is called, so an overlap in the history is a real one.

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
pub mod operations;
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
