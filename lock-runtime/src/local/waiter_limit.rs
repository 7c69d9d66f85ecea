//! [`WaiterLimit`]: how many tasks of a manager wait, and how many may wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::observe::metrics;

/// Counts the tasks that wait. Each costs memory, and anyone who can make requests can make tasks wait.
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

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts one more task, behind `others` for the same key. The error is the limit that was reached.
    pub(super) fn admit(&self, others: usize) -> Result<CountedWaiter<'_>, usize> {
        if others >= self.max_per_key {
            return Err(self.max_per_key);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = CountedWaiter { limit: self, waiter: metrics::Counted::nothing() };
        if before < self.max { Ok(waiting) } else { Err(self.max) }
    }
}

/// Counts a task as a waiter until this is dropped.
#[derive(Debug)]
pub(super) struct CountedWaiter<'a> {
    limit: &'a WaiterLimit,
    waiter: metrics::Counted,
}

impl CountedWaiter<'_> {
    /// Also counts it under this prefix.
    pub(super) fn of(mut self, prefix: &str) -> Self {
        self.waiter = metrics::Counted::waiter(prefix);
        self
    }
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.limit.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
