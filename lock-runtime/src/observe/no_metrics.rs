//! What stands in place of `metrics.rs` without the feature `metrics`: the same fns, which do nothing.

use std::time::Duration;

use super::Path;

pub(crate) fn describe() {}

#[derive(Debug)]
pub(crate) struct Holds;

impl Holds {
    pub(crate) fn new() -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "it stands for one that counts")]
    pub(crate) fn begin(&mut self, _prefix: &str, _path: Path) -> Holding {
        Holding
    }

    #[expect(clippy::unused_self, reason = "it stands for one that counts")]
    pub(crate) fn linger(&self) -> Lingering {
        Lingering
    }
}

#[derive(Debug)]
pub(crate) struct Lingering;

#[derive(Debug)]
pub(crate) struct Holding;

#[derive(Debug)]
pub(crate) struct Waiter;

impl Waiter {
    pub(crate) fn nobody() -> Self {
        Self
    }

    pub(crate) fn begin(_prefix: &str) -> Self {
        Self
    }
}

pub(crate) fn waited(_prefix: &str, _waited: Duration) {}

pub(crate) fn timed_out(_prefix: &str) {}

pub(crate) fn lost(_prefix: &str, _holds: u64) {}

pub(crate) fn commands(_count: u64) {}

pub(crate) fn reconnected() {}

pub(crate) fn renewed(_count: u64) {}
