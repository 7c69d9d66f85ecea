//! What a run has shown.

use std::cell::RefCell;
use std::time::Duration;

use super::{BUSY, Deviation, LATE, Way};
use crate::FencingToken;

/// What a task may do beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Alone,
    Read,
    Permit(usize),
}

/// Who has the lock, and what was wrong by now.
#[derive(Default)]
pub(super) struct Judge {
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    holders: Vec<(&'static str, usize, Mode)>,
    last: Option<FencingToken>,
    broken: Vec<String>,
}

impl Judge {
    pub(super) fn begin(&self, process: &'static str, task: usize, mode: Mode, token: Option<FencingToken>) {
        let seen = &mut *self.seen.borrow_mut();
        seen.holders.retain(|(process, ..)| !super::has_crashed(process));
        let beside = seen.holders.len();
        let fits = match mode {
            Mode::Alone => beside == 0,
            Mode::Read => seen.holders.iter().all(|(.., mode)| *mode == Mode::Read),
            Mode::Permit(of) => beside < of,
        };
        if !fits {
            seen.broken.push(format!("task {task} works beside {:?}", seen.holders));
        }
        seen.holders.push((process, task, mode));
        if mode == Mode::Alone && token.is_some() {
            if token <= seen.last {
                seen.broken.push(format!("task {task} has the token {token:?} after {:?}", seen.last));
            }
            seen.last = token;
        }
    }

    pub(super) fn end(&self, task: usize) {
        self.seen.borrow_mut().holders.retain(|(_, other, _)| *other != task);
    }

    pub(super) fn note(&self, what: String) {
        self.seen.borrow_mut().broken.push(what);
    }

    pub(super) fn broken(self) -> Vec<String> {
        self.seen.into_inner().broken
    }
}

/// How much longer somebody may wait because of these.
pub(super) fn allowed(plan: &[Deviation], lease: Duration) -> Duration {
    plan.iter().map(|(_, way)| cost(*way, lease)).sum()
}

fn cost(way: Way, lease: Duration) -> Duration {
    let second = Duration::from_secs(1);
    match way {
        Way::Late => LATE * 2,
        Way::Unpolled => BUSY * 2,
        // A waiter finds out by asking (rule 5).
        Way::Lost | Way::Dropped => second,
        // A new connection, and a repetition.
        Way::CutBefore | Way::CutAfter => second * 3 / 2,
        Way::Crash => lease + second,
    }
}
