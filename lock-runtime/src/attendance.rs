//! [`Early`]: a hold that is there before its acquire is over. It is one of several keys while the task waits for the others, or the
//! part of a reader that still draws its fencing token.
//!
//! Rule L7 counts for it as for a turn: a task that does not come when it is called keeps nobody out. A task that waits is not
//! polled while nothing happens. So the keeper calls it, again and again, and the task comes by being polled ([`Attendance::attend`]).
//! When the task does not come, the keeper ends the hold as the task itself would by a drop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use thin_vec::ThinVec;

use crate::clock::Moment;
use crate::mutex::Mutex;
use crate::timing::{CALLED_EVERY, EARLY_HOLD_KEPT_FOR, TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// A task came late, at `now`. The next time others wait for twice as long as it needed. So a process whose tasks are all polled
/// late gets the lock, too. More than a second would help nobody.
pub(crate) fn patience_with(since: Option<Moment>, now: Moment) -> Duration {
    let needed = since.map_or(Duration::ZERO, |since| (now.since(since) + TURN_PATIENCE) * 2);
    if needed > UNUSED_LEASE_KEPT_FOR * 2 { TURN_PATIENCE } else { needed.clamp(TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR) }
}

/// Whether the task of early holds comes when it is called. All keys of a request have one.
#[derive(Debug)]
pub(crate) struct Attendance(Mutex<Roll>);

#[derive(Debug)]
struct Roll {
    /// Calls the task. `None` before its first poll, and when it comes no more.
    waker: Option<Waker>,
    /// When the task was called, if it has not come since.
    called: Option<Moment>,
    /// When it last came because it was called.
    came: Option<Moment>,
    /// How long the task may take to come when others wait.
    patience: Duration,
    /// Whether one of its holds was taken back, and the task does not know it yet.
    is_short: bool,
}

impl Attendance {
    pub(crate) fn new() -> Arc<Self> {
        let roll = Roll { waker: None, called: None, came: None, patience: TURN_PATIENCE, is_short: false };
        Arc::new(Self(Mutex::new(roll)))
    }

    /// Polls `future`. `None` when one of the holds was taken back because nothing was polled.
    pub(crate) async fn attend<F: Future>(&self, future: F) -> Option<F::Output> {
        let _coming = Coming(self);
        let mut future = pin!(future);
        poll_fn(|context| match self.come(context.waker()) {
            Comes::InTime => future.as_mut().poll(context).map(Some),
            Comes::TooLate => Poll::Ready(None),
        })
        .await
    }

    /// The task is polled.
    fn come(&self, waker: &Waker) -> Comes {
        let waker = waker.clone();
        let mut roll = self.0.lock();
        if let Some(called) = roll.called.take() {
            let now = Moment::now();
            roll.came = Some(now);
            // Who comes late has more time from then on (rule L7), and so a set of keys is had in the end.
            if now.since(called) > TURN_PATIENCE {
                roll.patience = patience_with(Some(called), now);
            }
        }
        let is_known = roll.waker.as_ref().is_some_and(|known| known.will_wake(&waker));
        // A waker may be the last that knows of its task. So it is dropped without the lock.
        let unneeded = if is_known { Some(waker) } else { roll.waker.replace(waker) };
        let comes = if std::mem::take(&mut roll.is_short) { Comes::TooLate } else { Comes::InTime };
        drop(roll);
        drop(unneeded);
        comes
    }

    /// Whether the task has not come for so long that others can't wait for it. Calls the task, if it was not called since it came.
    /// While nobody waits, it is called from time to time.
    fn is_absent(&self, is_wanted: bool, now: Moment, calls: &mut ThinVec<Waker>) -> bool {
        let mut roll = self.0.lock();
        let Some(called) = roll.called else {
            if is_wanted || roll.called_again_in(now).is_zero() {
                roll.called = Some(now);
                // When it comes, it brings another one.
                calls.extend(roll.waker.take());
            }
            return false;
        };
        let absent_for = now.since(called);
        absent_for >= EARLY_HOLD_KEPT_FOR || (is_wanted && absent_for > roll.patience)
    }

    /// When the keeper has to look again although nobody is known to wait. Nobody tells the keeper that a task came which it has
    /// called, so it looks as often as it calls.
    pub(crate) fn due_in(&self, now: Moment) -> Duration {
        let roll = self.0.lock();
        let left = |called| EARLY_HOLD_KEPT_FOR.saturating_sub(now.since(called));
        mutant!(CallsTooSeldom => return roll.called.map_or_else(|| roll.called_again_in(now), left));
        roll.called.map_or_else(|| roll.called_again_in(now), |called| left(called).min(CALLED_EVERY))
    }
}

/// A task that comes when it is called. When it does not come any more, its waker is dropped here, without any lock: those who keep the
/// attendance drop it under theirs.
struct Coming<'a>(&'a Attendance);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        mutant!(AttendanceKeepsWaker => return);
        let waker = self.0.0.lock().waker.take();
        drop(waker);
    }
}

impl Roll {
    fn called_again_in(&self, now: Moment) -> Duration {
        self.came.map_or(Duration::ZERO, |came| CALLED_EVERY.saturating_sub(now.since(came)))
    }
}

/// How a task comes that is polled.
enum Comes {
    InTime,
    /// One of its holds was taken back meanwhile.
    TooLate,
}

/// A hold that is early, from the view of its task and of the keeper. One of the two decides how that ends.
#[derive(Debug)]
pub(crate) struct Early {
    attendance: Arc<Attendance>,
    fate: OnceLock<Fate>,
}

/// How a hold stops being early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its task has it for good, or has ended it.
    Ended,
    /// The keeper took it back.
    TakenBack,
}

impl Early {
    pub(crate) fn new(attendance: &Arc<Attendance>) -> Arc<Self> {
        Arc::new(Self { attendance: Arc::clone(attendance), fate: OnceLock::new() })
    }

    pub(crate) fn attendance(&self) -> &Attendance {
        &self.attendance
    }

    /// From here on the keeper does not take the hold back. Returns `false` when it has done so already.
    pub(crate) fn end(&self) -> bool {
        *self.fate.get_or_init(|| Fate::Ended) == Fate::Ended
    }

    pub(crate) fn is_taken_back(&self) -> bool {
        self.fate.get() == Some(&Fate::TakenBack)
    }

    /// Takes the hold back when its task is absent. Returns whether it did.
    pub(crate) fn take_if_absent(&self, is_wanted: bool, now: Moment, calls: &mut ThinVec<Waker>) -> bool {
        let is_absent = self.attendance.is_absent(is_wanted, now, calls);
        let is_taken = is_absent && *self.fate.get_or_init(|| Fate::TakenBack) == Fate::TakenBack;
        if is_taken {
            self.attendance.0.lock().is_short = true;
        }
        is_taken
    }

    pub(crate) fn is_open(&self) -> bool {
        self.fate.get().is_none()
    }
}
