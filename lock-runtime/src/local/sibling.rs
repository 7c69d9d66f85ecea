//! What a single try learns from another task of its process that has the turn (promise 7: a try tries once).
//!
//! A try does not wait for the lock. While a sibling holds the lock, the try is told so at once. While the sibling has only asked, the
//! try waits for the outcome, which is its own as well: one ask answers both.

use super::asking::LockStatus;
use super::slot::{Entered, Slot, State};
use crate::timing::SILENCE;

/// What has become of a sibling's turn.
pub(super) enum TurnOutcome {
    /// Its task knows nothing yet.
    Open,
    /// A hold began. It may have ended since.
    Held,
    /// The lock is held elsewhere, or the store does not answer.
    Refused,
    /// Nobody has the turn any more, or its task did not take it up.
    Left,
}

/// A single try that waits for the outcome of a sibling's turn.
pub(super) struct WaitingTry<'a>(&'a Slot);

impl Slot {
    pub(super) fn wait_as_try(&self) -> WaitingTry<'_> {
        self.state.lock().waiting_tries += 1;
        WaitingTry(self)
    }

    /// What has become of the turn that a sibling had when the slot had had so many holds.
    ///
    /// `changed` is notified of each change that makes it anything but open: an answer, a failure, a hold that begins while a try
    /// waits, and a turn that ends or is taken from its task.
    pub(super) fn outcome_of_turn(&self, holds: u64) -> TurnOutcome {
        let state = self.state.lock();
        if state.has_held_since(holds) {
            return TurnOutcome::Held;
        }
        match state.status(SILENCE) {
            LockStatus::HeldHere => TurnOutcome::Held,
            LockStatus::HeldElsewhere | LockStatus::Unreachable(_) => TurnOutcome::Refused,
            LockStatus::Silent(_) | LockStatus::Unknown if state.has_left() => TurnOutcome::Left,
            LockStatus::Silent(_) | LockStatus::Unknown => TurnOutcome::Open,
        }
    }
}

impl Drop for WaitingTry<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting_tries -= 1;
    }
}

impl State {
    /// How a single try finds the slot when another task has the turn.
    pub(super) fn refuse_try<'a>(&self) -> Entered<'a> {
        if self.is_held() { Entered::Taken } else { Entered::Asked { holds: self.counts.holds } }
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

    /// Whether the sibling is gone, or late: the try has its turn now.
    fn has_left(&self) -> bool {
        mutant!(LeftTurnAwaited => return false);
        self.is_turn_free()
    }
}
