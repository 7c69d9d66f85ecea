//! Replaces `metrics.rs` without the feature `metrics`: the same fns, which do nothing.

use std::time::Duration;

use super::Path;

pub(crate) fn describe() {}

#[derive(Debug, Default)]
pub(crate) struct Holds;

impl Holds {
    #[expect(clippy::unused_self, reason = "it stands for one that counts")]
    pub(crate) fn begin(&self, _prefix: &str, _path: Path) -> Holding {
        Holding
    }

    #[expect(clippy::unused_self, reason = "it stands for one that counts")]
    pub(crate) fn linger(&self) -> Counted {
        Counted
    }
}

#[derive(Debug)]
pub(crate) struct Holding;

impl Holding {
    #[expect(clippy::unused_self, reason = "it stands for one that counts")]
    pub(crate) fn end(&self) {}
}

#[derive(Debug)]
pub(crate) struct Counted;

impl Counted {
    pub(crate) fn nothing() -> Self {
        Self
    }

    pub(crate) fn waiter(_prefix: &str) -> Self {
        Self
    }
}

pub(crate) fn wait<F>(_prefix: &str, _is_part: bool, waiting: F) -> F {
    waiting
}

pub(crate) fn tell_oldest() -> Option<Duration> {
    None
}

pub(crate) fn tell_last() {}

pub(crate) fn timed_out(_prefix: &str) {}

pub(crate) fn lost(_prefix: &str, _holds: u64) {}

pub(crate) fn commands(_count: u64) {}

pub(crate) fn reconnected() {}

pub(crate) fn renewed(_count: u64) {}
