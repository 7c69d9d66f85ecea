//! What a lock knows of a hold that is early: its acquire is not over (see [`Early`]).

use std::sync::Arc;
use std::time::Duration;

use super::hold::ActiveHold;
use super::readers::EarlyReader;
use super::{Effects, Env, Lock};
use crate::attendance::Early;
use crate::clock::Moment;

impl ActiveHold {
    /// Notes that the hold, or the part that one reader has in it, is early.
    pub(super) fn note_early(&mut self, early: Option<&Arc<Early>>, has_body: bool) {
        mutant!(EarlyHoldsKept => return);
        match &mut self.readers {
            Some(readers) => {
                if let Some(early) = early.cloned() {
                    readers.forget_complete();
                    readers.early.push(EarlyReader { early, has_body });
                }
            }
            None => self.early = early.cloned(),
        }
    }

    fn early(&self) -> impl Iterator<Item = &Arc<Early>> {
        let of_readers = self.readers.iter().flat_map(|readers| &readers.early).map(|reader| &reader.early);
        self.early.iter().chain(of_readers).filter(|early| early.is_open())
    }

    /// Whether somebody has it early.
    pub(super) fn is_early(&self) -> bool {
        self.early().next().is_some()
    }

    /// Whether the keeper has taken it back from its only task.
    pub(super) fn is_taken_back(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.is_taken_back())
    }

    /// In how long the keeper has to see whether the tasks come that have it early.
    pub(super) fn attendance_due_in(&self, now: Moment) -> Option<Duration> {
        self.early().map(|early| early.attendance().due_in(now)).min()
    }
}

/// What the keeper finds about the tasks that have a hold early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Present {
    /// All have come so far, or nobody waits.
    Yes,
    /// Others wait, so the keeper looks again soon.
    Wanted,
    /// None came, and nobody else has the hold.
    Nobody,
}

impl Lock {
    /// Takes the hold back from tasks that do not come. The others are called.
    pub(super) fn check_early(&mut self, env: &dyn Env, now: Moment, out: &mut Effects) -> Present {
        let waits_here = !self.waiters.is_empty() || env.has_waiters_for_any_permit();
        let Some(lease) = self.standing.lease_mut() else { return Present::Yes };
        let is_wanted = lease.is_contended(now) || waits_here;
        let Some(hold) = lease.hold.as_mut().filter(|hold| hold.is_early()) else { return Present::Yes };
        let is_abandoned = match &mut hold.readers {
            Some(readers) => {
                let is_absent = |reader: &mut EarlyReader| reader.early.take_if_absent(is_wanted, now, &mut out.calls);
                for taken in readers.early.extract_if(.., is_absent) {
                    readers.active = readers.active.saturating_sub(1);
                    hold.bodies = hold.bodies.saturating_sub(is_counted(&taken).into());
                }
                readers.forget_complete();
                readers.is_empty()
            }
            None => hold.early.as_ref().is_some_and(|early| early.take_if_absent(is_wanted, now, &mut out.calls)),
        };
        match is_abandoned {
            true => Present::Nobody,
            false if is_wanted => Present::Wanted,
            false => Present::Yes,
        }
    }

    /// Others begin to wait. When the hold is early, the keeper looks whether its task comes.
    pub(crate) fn note_waiter_for_early(&mut self) {
        if self.hold().is_some_and(ActiveHold::is_early) {
            self.track();
        }
    }
}

/// Whether the reader counts as one whose body ends before a lost lease is released (rule 14).
fn is_counted(reader: &EarlyReader) -> bool {
    mutant!(TakenBackHasBody => return false);
    reader.has_body
}
