//! [`Early`]: a hold that begins before its acquire ends. It is one of several keys while the task waits for the others, or the part of
//! a reader that still draws its fencing token.
//!
//! Rule L7 (a task that is not polled keeps others out for a bounded time) holds for it, too. A task that waits is not polled while
//! nothing happens. So the keeper wakes it again and again, and looks whether it is polled ([`Attendance::attend`]). When it is not, the
//! keeper ends the hold as the task itself would by a drop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use thin_vec::ThinVec;

use crate::clock::Moment;
use crate::mutex::Mutex;
use crate::timing::{CALLED_EVERY, EARLY_HOLD_KEPT_FOR, TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// The patience with a task that was polled late, at `now`. The next time others wait for twice as long as it needed, and for a second at
/// most. So a process whose tasks are all polled late gets the lock, too.
pub(crate) fn patience_with(since: Option<Moment>, now: Moment) -> Duration {
    let needed = since.map_or(Duration::ZERO, |since| (now.since(since) + TURN_PATIENCE) * 2);
    if needed > UNUSED_LEASE_KEPT_FOR * 2 { TURN_PATIENCE } else { needed.clamp(TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR) }
}

/// Whether the task of early holds is polled when it is woken. All keys of a request have one.
#[derive(Debug)]
pub(crate) struct Attendance(Mutex<Polls>);

#[derive(Debug)]
struct Polls {
    /// `None` before the first poll, after a wake, and when the task is not polled any more.
    waker: Option<Waker>,
    /// When the task was woken, if it was not polled since.
    woken: Option<Moment>,
    /// When it was last polled after a wake.
    polled: Option<Moment>,
    /// For how long others wait for its next poll.
    patience: Duration,
    /// Whether the keeper took back one of its holds, and the task does not know it yet.
    is_short: bool,
}

impl Attendance {
    pub(crate) fn new() -> Arc<Self> {
        let (waker, woken, polled) = (None, None, None);
        Arc::new(Self(Mutex::new(Polls { waker, woken, polled, patience: TURN_PATIENCE, is_short: false })))
    }

    /// Polls `future`. `None` when one of the holds was taken back because nothing was polled.
    pub(crate) async fn attend<F: Future>(&self, future: F) -> Option<F::Output> {
        let _attending = Attending(self);
        let mut future = pin!(future);
        poll_fn(
            |context| {
                if self.on_poll(context.waker()) { future.as_mut().poll(context).map(Some) } else { Poll::Ready(None) }
            },
        )
        .await
    }

    /// Returns `false` when one of the holds was taken back.
    fn on_poll(&self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut polls = self.0.lock();
        if let Some(woken) = polls.woken.take() {
            let now = Moment::now();
            polls.polled = Some(now);
            // A task that is late has more time from then on (rule L7), so that it gets a set of keys in the end.
            if now.since(woken) > TURN_PATIENCE {
                polls.patience = patience_with(Some(woken), now);
            }
        }
        let is_known = polls.waker.as_ref().is_some_and(|known| known.will_wake(&waker));
        // A waker may be the last that knows of its task. So it is dropped without the mutex.
        let unneeded = if is_known { Some(waker) } else { polls.waker.replace(waker) };
        let is_whole = !std::mem::take(&mut polls.is_short);
        drop(polls);
        drop(unneeded);
        is_whole
    }

    /// Whether the task was not polled for so long that others can't wait for it. Wakes the task, if it was polled since the last wake.
    /// While no other task waits, it is woken from time to time.
    fn is_overdue(&self, is_wanted: bool, now: Moment, wakes: &mut ThinVec<Waker>) -> bool {
        let mut polls = self.0.lock();
        let Some(woken) = polls.woken else {
            if is_wanted || polls.next_wake_in(now).is_zero() {
                polls.woken = Some(now);
                // Its next poll brings another one.
                wakes.extend(polls.waker.take());
            }
            return false;
        };
        let overdue = now.since(woken);
        overdue >= EARLY_HOLD_KEPT_FOR || (is_wanted && overdue > polls.patience)
    }

    /// When the keeper has to look again although no other task is known to wait. The keeper does not hear of a poll, so it looks as
    /// often as it wakes.
    pub(crate) fn due_in(&self, now: Moment) -> Duration {
        let polls = self.0.lock();
        let Some(woken) = polls.woken else { return polls.next_wake_in(now) };
        let left = EARLY_HOLD_KEPT_FOR.saturating_sub(now.since(woken));
        mutant!(CallsTooSeldom => left, else left.min(CALLED_EVERY))
    }
}

impl Polls {
    fn next_wake_in(&self, now: Moment) -> Duration {
        self.polled.map_or(Duration::ZERO, |polled| CALLED_EVERY.saturating_sub(now.since(polled)))
    }
}

/// A task that is polled. When it ends, its waker is dropped here, without any mutex: the lock drops the attendance under its own.
struct Attending<'a>(&'a Attendance);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        mutant!(AttendanceKeepsWaker => return);
        let waker = self.0.0.lock().waker.take();
        drop(waker);
    }
}

/// A hold that is early, from the view of its task and of the keeper. One of the two decides how that ends.
#[derive(Debug)]
pub(crate) struct Early {
    attendance: Arc<Attendance>,
    /// How it stops being early: the keeper takes it back, or its task has it for good or ends it.
    is_taken_back: OnceLock<bool>,
}

impl Early {
    pub(crate) fn new(attendance: &Arc<Attendance>) -> Arc<Self> {
        Arc::new(Self { attendance: Arc::clone(attendance), is_taken_back: OnceLock::new() })
    }

    pub(crate) fn attendance(&self) -> &Attendance {
        &self.attendance
    }

    /// From here on the keeper does not take the hold back. Returns `false` when it has done so already.
    pub(crate) fn end(&self) -> bool {
        !self.is_taken_back.get_or_init(|| false)
    }

    pub(crate) fn is_taken_back(&self) -> bool {
        self.is_taken_back.get() == Some(&true)
    }

    /// Takes the hold back when its task is overdue. Returns whether it did.
    pub(crate) fn take_if_absent(&self, is_wanted: bool, now: Moment, wakes: &mut ThinVec<Waker>) -> bool {
        let is_overdue = self.attendance.is_overdue(is_wanted, now, wakes);
        let is_taken = is_overdue && *self.is_taken_back.get_or_init(|| true);
        if is_taken {
            self.attendance.0.lock().is_short = true;
        }
        is_taken
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_taken_back.get().is_none()
    }
}
