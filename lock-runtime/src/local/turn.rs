//! [`Turn`]: the right to act for one key in this process.

use std::sync::Arc;

use super::Core;
use super::slot::Slot;
use crate::clock::Moment;
use crate::lock::{Attempt, Ended, EndedHold, Ending, ResolvedRequest, Step, Told};
use crate::protocol::{Answer, Ask, Release, Renewed};

/// The turn in a slot. Dropping it passes the turn on, and releases or withdraws what no task needs any more.
#[derive(Debug)]
pub(crate) struct Turn {
    slot: Arc<Slot>,
    id: u64,
    is_armed: bool,
}

impl Turn {
    pub(crate) fn new(slot: &Arc<Slot>, id: u64) -> Self {
        Self { slot: Arc::clone(slot), id, is_armed: true }
    }

    /// Drops the turn without passing it on.
    pub(super) fn defuse(mut self) {
        self.is_armed = false;
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.slot.core
    }

    /// Decides on the next step, and notes it before it is done.
    pub(super) fn step(&self, request: &ResolvedRequest, attempt: &Attempt, now: Moment) -> Step {
        let Self { slot, id, .. } = self;
        slot.step(|lock, out| lock.step(*id, request, attempt, &**slot, now, out))
    }

    /// Takes in the answer to an ask.
    pub(super) fn on_answer(&self, ask: &Ask, answer: Answer) -> Told {
        let told = Told::by(&answer);
        let granted = told == Told::Yes;
        // When this task was passed over, the other tasks know better by now who has the lock.
        if (granted || self.slot.peek(|lock| lock.has_turn(self.id))) && !self.slot.on_answer(ask, answer) {
            // The ask was withdrawn meanwhile, perhaps before the server executed it.
            self.core().withdraw(ask.withdrawal());
        }
        told
    }

    /// Takes in the answer to a plain claim.
    pub(super) fn on_claim_answer(&self, ask: &Ask, answer: Answer) -> Told {
        self.on_answer(&Ask { wait: false, ..ask.clone() }, answer)
    }

    /// Takes in the answer to a confirmation.
    pub(super) fn on_confirm_answer(&self, outcome: Renewed) -> Told {
        let told = if matches!(outcome, Renewed::Until(_)) { Told::Yes } else { Told::Lost };
        let gone = self.slot.step(|lock, out| lock.on_confirm_answer(self.id, outcome, &*self.slot, out));
        self.release_gone(gone);
        told
    }

    /// Takes in that a confirmation failed.
    pub(super) fn on_failed_confirmation(&self) {
        let over = self.slot.step(|lock, _| lock.take_unconfirmed_lease(self.id, &*self.slot));
        self.release_gone(over);
    }

    /// Takes in the answer to a draw.
    pub(super) fn on_draw_answer(&self, first: Option<u64>, count: u32) -> Told {
        let gone = self.slot.step(|lock, out| lock.on_draw_answer(self.id, first, count, &*self.slot, out));
        self.release_gone(gone);
        if first.is_some() { Told::Yes } else { Told::Lost }
    }

    /// What the store still has of a lease that is gone here is in the way of others: the mark of a force (rule 21), or a part of the
    /// lock.
    fn release_gone(&self, gone: Option<Release>) {
        mutant!(UnusedMarkLeft => return);
        if let Some(gone) = gone {
            self.core().release_later(gone);
        }
    }

    /// Does what the end of a hold asks for, without waiting for the store. Then the turn passes on, with the lease if it was kept.
    /// A hold that was lost before is given to `lost`.
    pub(super) fn conclude(self, Ended { ending, hold }: Ended, lost: impl FnOnce(Option<Release>, Option<EndedHold>)) {
        let core = self.core();
        match ending {
            // The turn is that of the hold.
            Ending::Joint => self.defuse(),
            Ending::Kept | Ending::Lingers => {}
            Ending::Lost(left) => lost(left, hold),
            Ending::Rests(release) | Ending::Free(release) | Ending::Yield(release) => core.release_later(release),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_armed {
            self.slot.pass_on(self.id);
        }
    }
}
