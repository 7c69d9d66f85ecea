//! [`Crowd`]: how many tasks of a manager wait, and how many may.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the tasks that wait: each costs memory, and whoever can make requests can make tasks wait.
#[derive(Debug)]
pub(crate) struct Crowd {
    waiting: AtomicUsize,
    most: usize,
    most_per_key: usize,
}

impl Crowd {
    pub(crate) fn new(most: usize, most_per_key: usize) -> Self {
        Self { waiting: AtomicUsize::new(0), most, most_per_key }
    }

    /// Counts one more, behind `others` for the same key; the limit when it is reached.
    pub(super) fn enter(&self, others: usize) -> Result<Waiting<'_>, usize> {
        if others >= self.most_per_key {
            return Err(self.most_per_key);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(self);
        if before < self.most { Ok(waiting) } else { Err(self.most) }
    }
}

/// A task that waits, for as long as this is not dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a Crowd);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
