//! [`KeepAlive`]: a hold that is there before its acquire is complete. It is one of several keys while the task waits for the others, or
//! the part of a reader that still draws its fencing token.
//!
//! Such a hold ends a claim after its task was last polled: a task that is not polled keeps others out no longer than one that has
//! crashed. The task wakes itself to be polled in time ([`KeepAlive::poll_within`]).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::timing::CLAIM;

/// How often the task wakes itself.
const TOUCHED_EVERY: Duration = Duration::from_millis(800);

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

    /// Polls `future`, and keeps the holds alive meanwhile. `None` when the task was not polled for so long that they have ended.
    pub(crate) async fn poll_within<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut timer = pin!(tokio::time::sleep(TOUCHED_EVERY));
        poll_fn(|context| {
            if !self.touch(Moment::now()) {
                return Poll::Ready(None);
            }
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                while timer.as_mut().poll(context).is_ready() {
                    timer.as_mut().reset(tokio::time::Instant::now() + TOUCHED_EVERY);
                }
            }
            polled.map(Some)
        })
        .await
    }

    /// The task is polled. Returns `false` when the holds have ended before: from now on others may last.
    fn touch(&self, now: Moment) -> bool {
        let is_in_time = !self.ends().has_passed_at(now);
        *self.0.lock() = now;
        is_in_time
    }
}
