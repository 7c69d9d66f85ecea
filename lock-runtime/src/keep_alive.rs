//! [`KeepAlive`]: a hold whose acquire is not complete. It is one of several keys while the task waits for the others, or that of a reader
//! that still draws its fencing token.
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
pub(crate) struct KeepAlive(Mutex<Polled>);

#[derive(Debug)]
struct Polled {
    last: Moment,
    /// Whether the task has holds: until then it may be polled as late as any other.
    has_holds: bool,
}

impl KeepAlive {
    pub(crate) fn new(now: Moment) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Polled { last: now, has_holds: false })))
    }

    /// When the task's holds end if it is not polled again.
    pub(crate) fn ends(&self) -> Deadline {
        self.0.lock().ends()
    }

    /// A hold of the task begins.
    pub(crate) fn note_hold(&self) {
        self.0.lock().has_holds = true;
    }

    /// All holds of the task are gone.
    pub(crate) fn forget_holds(&self) {
        self.0.lock().has_holds = false;
    }

    /// Records a poll of the task. Returns `false` when its holds had ended before; new ones last from now on.
    pub(crate) fn touch(&self, now: Moment) -> bool {
        let mut polled = self.0.lock();
        let has_ended = polled.ends().has_passed_at(now);
        polled.last = now;
        !(has_ended && polled.has_holds)
    }
}

impl Polled {
    fn ends(&self) -> Deadline {
        mutant!(UnpolledPartsKept => return Deadline::after(Duration::from_secs(3600)));
        Deadline::new(self.last, CLAIM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_task_with_holds_has_to_be_polled_in_time() {
        let alive = KeepAlive::new(Moment::now());
        let mut in_time = Vec::new();
        for change in [KeepAlive::forget_holds, KeepAlive::note_hold, KeepAlive::forget_holds] {
            change(&alive);
            tokio::time::advance(CLAIM).await;
            in_time.push(alive.touch(Moment::now()));
        }
        assert_eq!(in_time, [true, false, true]);
    }
}
