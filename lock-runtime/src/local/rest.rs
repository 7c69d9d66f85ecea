//! The rest of a lock that is kept for `at_least`: its hold has ended, and others are still kept out.
//!
//! The lease was confirmed for that long before the hold started, so the store keeps others out whatever becomes of this
//! process. When the hold ends before that time, it *rests*: it stays in the slot without a user, and with the turn. So tasks here
//! wait for it as for any hold, and other processes find the lock taken. The keeper ends it when the time is over, and then the
//! lock is passed on as after any hold.
//!
//! A hold that is lost does not rest, because its body may still run. Its lease is left to its end in the store. The same happens
//! when the manager is shut down.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::lease::Lease;
use super::slot::{Slot, State};
use super::upkeep::ScheduleKeys;
use crate::clock::Moment;

impl Lease {
    /// Whether others are to be kept out at `now`, also when the hold has ended.
    pub(super) fn keeps_out(&self, now: Moment) -> bool {
        !self.rest(now).is_zero()
    }

    /// For how long others are still kept out.
    pub(super) fn rest(&self, now: Moment) -> Duration {
        mutant!(RestSkipped => return Duration::ZERO);
        let until = self.hold.as_ref().and_then(|hold| hold.kept_until.as_ref());
        until.map_or(Duration::ZERO, |until| until.remaining_at(now))
    }

    /// Whether its hold has ended, and only keeps others out.
    pub(super) fn rests(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.rests)
    }
}

impl State {
    /// Makes the hold that ends now rest. It gets another number, so nobody takes it for the hold that it was.
    pub(super) fn begin_rest(&mut self, rest: Duration, slot: &Arc<Slot>) {
        let id = self.new_id();
        let Some(lease) = self.lease.as_mut() else { return };
        lease.look_in(slot, rest);
        let Some(hold) = lease.hold.as_mut() else { return };
        hold.id = id;
        hold.rests = true;
        // It ends with its lease: what it wanted for itself may be shorter than the rest.
        hold.own = lease.until;
        hold.body = false;
        hold.renew = false;
        hold.is_long_told = true;
        hold.holding = None;
        if let Some(readers) = &mut hold.readers {
            readers.active = 0;
        }
        self.turn = Some(id);
        self.offers.reset();
    }
}

impl Slot {
    /// For how long the lock still rests. `None` when it does not.
    pub(super) fn rests_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.lease.as_ref().filter(|lease| lease.rests()).map(|lease| lease.rest(Moment::now()))
    }

    /// Leaves the lease of a hold that rests to its end in the store.
    fn leave_rest(&self) -> Option<ScheduleKeys> {
        let mut state = self.state.lock();
        let lease = state.lease.take_if(|lease| lease.rests())?;
        state.turn = None;
        state.offers.reset();
        let entries = lease.upkeep.entries;
        Some(ScheduleKeys { tracked: state.tracked.take(), ..entries })
    }
}

impl Core {
    /// Leaves the lease of a hold that rests to its end in the store: the manager is shut down.
    pub(super) fn leave_rest(&self, slot: &Arc<Slot>) {
        if let Some(entries) = slot.leave_rest() {
            self.schedule().cancel(entries);
        }
    }
}
