//! The verdict on a run.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use super::{BUSY, Deviation, LATE, STUCK, Way};
use crate::FencingToken;
use crate::timing::CLAIM;

/// How a task shares the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Alone,
    Read,
    Permit(usize),
}

/// The holders of the lock, and the violations so far.
#[derive(Default)]
pub(super) struct Judge {
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    holders: Vec<Holder>,
    last: Option<FencingToken>,
    broken: Vec<String>,
}

#[derive(Debug)]
struct Holder {
    process: &'static str,
    task: usize,
    mode: Mode,
    /// Until when its first lease is valid. A task that stops later may have had no way to notice that its time was over.
    until: Instant,
    /// When an operator released the lock by force.
    forced: Option<Instant>,
    /// The task that got the lock while this one still held it.
    beside: Option<usize>,
}

impl Judge {
    /// A task has the lock. Earlier holders must have stopped by now, or at least do nothing more.
    pub(super) fn begin(&self, process: &'static str, task: usize, mode: Mode, until: Instant) {
        let holders = &mut self.seen.borrow_mut().holders;
        holders.retain(|holder| !super::has_crashed(holder.process));
        let fits = match mode {
            Mode::Alone => holders.is_empty(),
            Mode::Read => holders.iter().all(|holder| holder.mode == Mode::Read),
            Mode::Permit(of) => holders.len() < of,
        };
        for holder in holders.iter_mut().filter(|_| !fits) {
            holder.beside = Some(task);
        }
        holders.push(Holder { process, task, mode, until, forced: None, beside: None });
    }

    pub(super) fn has(&self, task: usize) -> bool {
        self.seen.borrow().holders.iter().any(|holder| holder.task == task)
    }

    pub(super) fn step(&self, task: usize) {
        self.check(task, |_| true);
    }

    /// A task stops. It may stop late if its first lease is over: its deadline passed while it was not polled.
    pub(super) fn end(&self, task: usize) {
        self.check(task, |holder| Instant::now() < holder.until);
        self.seen.borrow_mut().holders.retain(|holder| holder.task != task);
    }

    /// The lock is released by force. A holder that gets no message about it has a claim's length to notice (rule 21).
    pub(super) fn force(&self) {
        let now = Instant::now();
        self.seen.borrow_mut().holders.iter_mut().for_each(|holder| holder.forced = Some(now));
    }

    fn check(&self, task: usize, counts: impl Fn(&Holder) -> bool) {
        let Seen { holders, broken, .. } = &mut *self.seen.borrow_mut();
        if let Some(holder) = holders.iter_mut().find(|holder| holder.task == task)
            && counts(holder)
            && holder.forced.is_none_or(|forced| forced.elapsed() < CLAIM)
            && let Some(other) = holder.beside.take()
        {
            broken.push(format!("task {task} works though task {other} has the lock"));
        }
    }

    /// An exclusive hold, or a body inside one, has this fencing token.
    pub(super) fn see(&self, task: usize, token: FencingToken) {
        let seen = &mut *self.seen.borrow_mut();
        if seen.last.is_some_and(|last| token <= last) {
            seen.broken.push(format!("task {task} has the token {token:?} after {:?}", seen.last));
        }
        seen.last = Some(token);
    }

    pub(super) fn note(&self, what: String) {
        self.seen.borrow_mut().broken.push(what);
    }

    pub(super) fn broken(self) -> Vec<String> {
        self.seen.into_inner().broken
    }
}

/// How much longer a wait may take because of these.
pub(super) fn allowed(plan: &[Deviation], lease: Duration) -> Duration {
    plan.iter().map(|(_, way)| cost(*way, lease)).sum()
}

fn cost(way: Way, lease: Duration) -> Duration {
    let second = Duration::from_secs(1);
    match way {
        Way::Late => LATE * 2,
        Way::Stuck => STUCK * 2,
        Way::Unpolled => BUSY * 2,
        // A waiter learns it by asking (rule 5).
        Way::Lost | Way::Dropped => second,
        // A new connection, and a repetition.
        Way::CutBefore | Way::CutAfter => second * 3 / 2,
        Way::Crash => lease + second,
        // It still counts as a listener, and is granted the lock once more.
        Way::Vanish => lease + CLAIM + second,
    }
}
