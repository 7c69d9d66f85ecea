//! [`Ending`]: what happens to a lease when its hold ends.

use std::sync::Arc;

use super::active_hold::{ActiveHold, EndedHold};
use super::asking::EndingToken;
use super::core::Core;
use super::lease::Lease;
use super::lingering::Lingering;
use super::slot::{Slot, State};
use super::turn::Turn;
use super::upkeep::ScheduleKeys;
use crate::clock::Moment;
use crate::store::Release;

/// What happens to the lease when its hold ends.
pub(super) enum Ending {
    /// The hold was lost before. The release is that of a lease whose hold outlived its deadline: the store may still have it.
    Lost(Option<Release>),
    /// The lease stays: for the next task here, or for the keeper to release when a guard was dropped.
    Kept,
    /// Other readers here still have the hold.
    Joint,
    /// The lease stays without a hold. The turn has ended, too.
    Lingers(Lingering),
    /// The lease ends with this release. No task here waits that is not late.
    Free(Release),
    /// The lease ends with this release although tasks here wait (rule L4: a streak of hand-overs is bounded, and
    /// another process waits).
    Yield(Release),
    /// The lease ends with this release, after which the lock rests (rule 23): others are still to be kept out, tasks here too.
    Rests(Release),
}

/// The outcome of [`Slot::end`].
pub(super) struct Ended {
    pub(super) ending: Ending,
    /// The schedule entries that the keeper no longer needs.
    pub(super) entries: ScheduleKeys,
    /// The hold. `None` when it was lost before.
    pub(super) hold: Option<EndedHold>,
}

impl Ended {
    /// Nothing is left to do but what the `ending` says.
    fn of(ending: Ending) -> Self {
        Self { ending, entries: ScheduleKeys::default(), hold: None }
    }
}

impl Slot {
    /// Ends the hold `id`.
    pub(super) fn end(self: &Arc<Self>, id: u64, now: Moment) -> Ended {
        let mut state = self.state.lock();
        if self.share.is_some() && state.leave_readers(id) {
            return self.end_joint(&mut state, now);
        }
        if let Some(lingering) = state.try_linger(id, self, now) {
            return Ended::of(Ending::Lingers(lingering));
        }
        let ended = self.end_in(&mut state, id, now);
        // Under the same lock: a late task would otherwise take the token for one that was given up.
        if let Ending::Free(release) | Ending::Yield(release) = &ended.ending
            && release.queued
        {
            state.note_release_begun(&release.token);
        }
        ended
    }

    /// Ends the hold `id` for good: nobody else has it, and its lease does not linger.
    fn end_in(self: &Arc<Self>, state: &mut State, id: u64, now: Moment) -> Ended {
        if !state.lease.as_ref().is_some_and(Lease::keeps_out) {
            state.take_from_queue(id, self);
        }
        let State { waiters, offers, tracked, lease: slot_lease, has_yielded, .. } = state;
        let Some(lease) = slot_lease.as_mut().filter(|lease| lease.hold.as_ref().is_some_and(|t| t.id == id)) else {
            return Ended::of(Ending::Lost(None));
        };
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        let mut entries = std::mem::take(&mut lease.upkeep.entries);
        entries.tracked = tracked.take();
        if lease.has_ended(now) {
            // Rule L6: the hold outlived its deadline, so the whole lease ends.
            let stale = Some(lease.release(&self.key));
            let hold = lease.ended_hold();
            *slot_lease = None;
            return Ended { ending: Ending::Lost(stale), entries, hold };
        }
        if lease.keeps_out() {
            let release = lease.release(&self.key);
            *slot_lease = None;
            return Ended { ending: Ending::Rests(release), entries, hold };
        }
        // The lease is kept for a late task, but not when another process waits.
        let is_last = waiters.is_empty() && (!offers.has_late() || lease.contention.is_some());
        let ending = if is_last {
            let release = lease.release(&self.key);
            *slot_lease = None;
            Ending::Free(release)
        } else if lease.try_hand_over() {
            lease.hold = None;
            *tracked = entries.tracked.take();
            Ending::Kept
        } else {
            let release = lease.release(&self.key);
            *slot_lease = None;
            *has_yielded = true;
            Ending::Yield(release)
        };
        Ended { ending, entries, hold }
    }

    /// Ends the part that one reader had in a hold that others still have.
    fn end_joint(&self, state: &mut State, now: Moment) -> Ended {
        let Some(lease) = state.lease.take_if(|lease| lease.has_ended(now)) else { return Ended::of(Ending::Joint) };
        // Rule L6: the hold outlived its deadline, so the whole lease ends. Rule 14: it is released when the last body is dropped.
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        // The reader that ends its part now has left already.
        let users = hold.map_or(0, |hold| hold.users) + 1;
        let hold = hold.map(|hold| EndedHold { users, ..hold });
        let entries = ScheduleKeys { tracked: state.tracked.take(), ..lease.upkeep.entries };
        state.ending.push(EndingToken::of_bodies(lease, users));
        self.changed.notify_waiters();
        Ended { ending: Ending::Lost(None), entries, hold }
    }

    /// Ends the hold `id`, and keeps its lease for the next task, or for the keeper to release.
    pub(super) fn end_dropped(self: &Arc<Self>, id: u64) -> Ended {
        let now = Moment::now();
        let mut state = self.state.lock();
        if self.share.is_some() && state.leave_readers(id) {
            return self.end_joint(&mut state, now);
        }
        self.end_dropped_in(&mut state, id, now)
    }

    /// Ends a hold that has no user any more. Returns its id, which has the turn.
    fn end_unused(self: &Arc<Self>) -> Option<(u64, Ended)> {
        let mut state = self.state.lock();
        let Some(id) = state.unused_hold() else {
            // A reader came just before. The timer of the hold may be gone.
            if state.is_held() {
                state.track(self);
            }
            return None;
        };
        Some((id, self.end_dropped_in(&mut state, id, Moment::now())))
    }

    fn end_dropped_in(self: &Arc<Self>, state: &mut State, id: u64, now: Moment) -> Ended {
        if let Some(lingering) = state.try_linger(id, self, now) {
            return Ended::of(Ending::Lingers(lingering));
        }
        if !state.lease.as_ref().is_some_and(Lease::keeps_out) {
            state.take_from_queue(id, self);
        }
        let State { waiters, offers, tracked, lease, .. } = state;
        if waiters.is_empty()
            && !offers.has_late()
            && let Some(lease) = lease
            && lease.hold.as_ref().is_some_and(|hold| hold.id == id)
            && !lease.has_ended(now)
            && !lease.keeps_out()
            && lease.try_hand_over_after_drop()
        {
            lease.hold = None;
            let mut entries = std::mem::take(&mut lease.upkeep.entries);
            entries.tracked = tracked.take();
            return Ended { entries, ..Ended::of(Ending::Kept) };
        }
        self.end_in(state, id, now)
    }
}

impl Turn {
    /// Does what the end of a hold asks for, without waiting for the store. Then the turn passes on, with the lease if it was kept.
    /// A hold that was lost before is given to `lost`.
    pub(super) fn conclude(self, ended: Ended, lost: impl FnOnce(Option<Release>, Option<EndedHold>)) {
        let Ended { ending, entries, hold } = ended;
        let core = self.core();
        core.schedule().cancel(entries);
        match ending {
            // The turn is that of the hold.
            Ending::Joint => self.defuse(),
            Ending::Kept => {}
            Ending::Rests(release) => core.release_later(release),
            Ending::Lingers(lingering) => core.on_linger_began(self.slot(), lingering),
            Ending::Lost(stale) => lost(stale, hold),
            Ending::Free(release) | Ending::Yield(release) => core.release_by_keeper(release),
        }
    }
}

impl Core {
    /// Ends a hold that has no user any more.
    pub(crate) fn end_unused(&self, slot: &Arc<Slot>) {
        let Some((id, ended)) = slot.end_unused() else { return };
        let release_stale = |stale: Option<Release>, _| stale.into_iter().for_each(|stale| self.release_later(stale));
        Turn::new(slot, id).conclude(ended, release_stale);
        self.table().forget_if_unused(slot);
    }
}

impl State {
    /// A hold to which none of the called readers came, or whose task did not come while it was early.
    fn unused_hold(&self) -> Option<u64> {
        let hold = self.lease.as_ref()?.hold.as_ref()?;
        let has_no_reader = hold.readers.as_ref().is_some_and(|readers| readers.is_empty());
        (has_no_reader || hold.is_taken_back()).then_some(hold.id)
    }
}
