//! [`WaiterLimit`]: how many tasks of a manager wait, and how many may wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::observe::metrics;

/// Counts the tasks that wait. Each of them costs memory, and everybody who can make requests can make tasks wait.
#[derive(Debug)]
pub(crate) struct WaiterLimit {
    waiting: AtomicUsize,
    max: usize,
    max_per_key: usize,
}

impl WaiterLimit {
    pub(crate) fn new(max: usize, max_per_key: usize) -> Self {
        Self { waiting: AtomicUsize::new(0), max, max_per_key }
    }

    /// How many tasks wait now.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts one more task, behind `others` for the same key. The error is the limit that was reached.
    pub(super) fn admit(&self, others: usize) -> Result<CountedWaiter<'_>, usize> {
        if others >= self.max_per_key {
            return Err(self.max_per_key);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = CountedWaiter { limit: self, waiter: metrics::Waiter::nobody() };
        if before < self.max { Ok(waiting) } else { Err(self.max) }
    }
}

/// A task that is counted as one who waits, until this is dropped.
#[derive(Debug)]
pub(super) struct CountedWaiter<'a> {
    limit: &'a WaiterLimit,
    waiter: metrics::Waiter,
}

impl CountedWaiter<'_> {
    /// The same for a task that wants a lock of this prefix.
    pub(super) fn of(mut self, prefix: &str) -> Self {
        self.waiter = metrics::Waiter::begin(prefix);
        self
    }
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.limit.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
