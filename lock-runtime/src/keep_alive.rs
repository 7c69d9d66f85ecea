//! [`KeepAlive`]: a hold that is there before its acquire is complete. It is one of several keys while the task waits for the others, or
//! the part of a reader that still draws its fencing token.
//!
//! Such a hold ends a claim after its task was last polled: a task that is not polled keeps others out no longer than one that has
//! crashed. The task wakes itself to be polled in time (`local/keeping.rs`).

use std::sync::Arc;
#[cfg(test)]
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::timing::CLAIM;

#[derive(Debug)]
pub(crate) struct KeepAlive(Mutex<Moment>);

impl KeepAlive {
    pub(crate) fn new(now: Moment) -> Arc<Self> {
        Arc::new(Self(Mutex::new(now)))
    }

    /// Until when the holds of the task last, if it is not polled again.
    pub(crate) fn ends(&self) -> Deadline {
        mutant!(UnpolledPartsKept => return Deadline::after(Duration::from_secs(3600)));
        Deadline::new(*self.0.lock(), CLAIM)
    }

    /// The task is polled. Returns `false` when the holds have ended before: from now on others may last.
    pub(crate) fn touch(&self, now: Moment) -> bool {
        let is_in_time = !self.ends().has_passed_at(now);
        *self.0.lock() = now;
        is_in_time
    }
}
