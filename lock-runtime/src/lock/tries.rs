//! A single try that finds the turn with a sibling: another task of its process.

use super::attempt::Attempt;
use super::no_hold::NoHold;
use super::request::ResolvedRequest;
use super::status::LockStatus;
use super::{Entered, Env, Lock};
use crate::timing::SILENCE;

/// What has become of the turn of a sibling: another task of this process. A single try does not wait for the lock. While a sibling
/// holds the lock, the try is told so at once. While the sibling has only asked, the try waits for the outcome, which is its own as
/// well: one ask answers both (promise 7: a try tries once).
#[derive(Debug)]
pub(crate) enum TurnOutcome {
    /// Its task knows nothing yet.
    Open,
    /// A hold began. It may have ended since.
    Held,
    /// The lock is held elsewhere, or the store does not answer. The try is told so in the same look: a moment later the sibling may be
    /// gone, and with it what it was told.
    Refused(NoHold),
    /// Nobody has the turn any more, or its task did not take it up.
    Left,
}

impl Lock {
    /// How a single try finds the lock when another task has the turn.
    pub(crate) fn refuse_try(&self) -> Entered {
        if self.is_held() { Entered::Taken } else { Entered::Asked { holds: self.counts.holds } }
    }

    /// A single try begins to wait for the outcome of the turn.
    pub(crate) fn add_try(&mut self) {
        self.waiting_tries += 1;
    }

    pub(crate) fn remove_try(&mut self) {
        self.waiting_tries -= 1;
    }

    /// What has become of the turn that a sibling had when there had been so many `holds`.
    ///
    /// Whoever watches is woken at each change that makes it anything but open: an answer, a failure, a hold that begins while a try
    /// waits, and a turn that ends or is taken from its task.
    pub(crate) fn outcome_of_turn(
        &self,
        holds: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
    ) -> TurnOutcome {
        if self.has_held_since(holds) {
            return TurnOutcome::Held;
        }
        let refused = || TurnOutcome::Refused(self.why_no_hold(request, attempt, env, env.now()));
        match self.status(SILENCE, env) {
            LockStatus::HeldHere => TurnOutcome::Held,
            LockStatus::HeldElsewhere => refused(),
            LockStatus::Unreachable(_) if !self.has_failed_briefly() => refused(),
            _ if self.has_left() => TurnOutcome::Left,
            _ => TurnOutcome::Open,
        }
    }

    /// Whether single tries wait for the hold that begins now.
    pub(super) fn is_awaited_by_tries(&self) -> bool {
        mutant!(HoldBeginsUntold => return false);
        self.waiting_tries > 0
    }

    /// A sibling may have held the lock and be gone before the try is polled. The try began before that hold.
    fn has_held_since(&self, holds: u64) -> bool {
        mutant!(SiblingsHoldForgotten => return false);
        self.counts.holds != holds
    }

    /// Whether the last command failed only because its task had less time than a single try has: from afar the answer was still on its
    /// way.
    fn has_failed_briefly(&self) -> bool {
        mutant!(BriefFailureIsAnswer => return false);
        self.failure.as_ref().is_some_and(|failure| failure.is_brief)
    }

    /// Whether the sibling is gone, or late: the try has its turn now.
    fn has_left(&self) -> bool {
        mutant!(LeftTurnAwaited => return false);
        self.is_turn_free()
    }
}
