//! [`Ending`]: what happens to a lease when its hold ends.

use std::sync::Arc;
use std::time::Duration;

use super::active_hold::{ActiveHold, EndedHold};
use super::asking::EndingToken;
use super::lingering::Lingering;
use super::slot::{Slot, State};
use super::upkeep::ScheduleKeys;
use crate::clock::Moment;
use crate::store::Release;

/// What happens to the lease when its hold ends.
pub(super) enum Ending {
    /// The hold was lost before. Its lease must be released if the store still has it.
    Lost,
    /// The lease stays, for the next task here.
    Kept,
    /// Other readers here still have the hold.
    Joint,
    /// The lease stays without a hold. The turn has ended, too.
    Lingers(Lingering),
    /// The lease ends with this release. No task here waits.
    Free(Release),
    /// The lease ends with this release although tasks here wait (rule L4: a streak of hand-overs is bounded, and
    /// another process waits).
    Yield(Release),
    /// The hold rests for this time, and keeps others out (`rest.rs`). It keeps the turn, too.
    Rests(Duration),
    /// The lease is left to its end in the store: the manager is shut down, and others are to be kept out.
    Left,
}

/// The outcome of [`Slot::end`].
pub(super) struct Ended {
    pub(super) ending: Ending,
    /// The schedule entries that the keeper no longer needs.
    pub(super) entries: ScheduleKeys,
    /// The release of a lease whose hold outlived its deadline.
    pub(super) stale: Option<Release>,
    /// The hold. `None` when it was lost before.
    pub(super) hold: Option<EndedHold>,
}

impl Slot {
    /// Ends the hold `id`.
    pub(super) fn end(self: &Arc<Self>, id: u64, now: Moment) -> Ended {
        let mut state = self.locked();
        let is_joint = self.share.is_some() && state.leave_readers(id);
        if !is_joint && let Some(lingering) = state.try_linger(id, self, now) {
            return Ended {
                ending: Ending::Lingers(lingering),
                entries: ScheduleKeys::default(),
                stale: None,
                hold: None,
            };
        }
        let ended = self.end_in(&mut state, id, now, is_joint);
        // Under the same lock: a late task would otherwise take the token for one that was given up.
        if let Ending::Free(release) | Ending::Yield(release) = &ended.ending
            && release.queued
        {
            state.note_release_begun(&release.token);
        }
        ended
    }

    /// Ends the hold `id`, unless it `is_joint`: others still have it.
    fn end_in(&self, state: &mut State, id: u64, now: Moment, is_joint: bool) -> Ended {
        if is_joint && let Some(ended) = self.end_joint(state, id, now) {
            return ended;
        }
        if !state.lease.as_ref().is_some_and(|lease| lease.keeps_out(now)) {
            state.take_from_queue(self);
        }
        let State { waiters, offers, tracked, lease: slot_lease, has_yielded, .. } = state;
        let Some(lease) = slot_lease.as_mut().filter(|lease| lease.hold.as_ref().is_some_and(|t| t.id == id)) else {
            return Ended { ending: Ending::Lost, entries: ScheduleKeys::default(), stale: None, hold: None };
        };
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        let mut entries = std::mem::take(&mut lease.upkeep.entries);
        entries.tracked = tracked.take();
        if lease.has_ended(now) {
            // Rule L6: the hold outlived its deadline, so the whole lease ends.
            // Where others are to be kept out, the lease is left to its end in the store.
            let stale = (!lease.keeps_out(now)).then(|| lease.release(&self.key));
            let hold = lease.ended_hold();
            *slot_lease = None;
            return Ended { ending: Ending::Lost, entries, stale, hold };
        }
        let rest = lease.rest(now);
        if !rest.is_zero() {
            return state.end_to_rest(rest, entries, self.core.is_closed());
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
        Ended { ending, entries, stale: None, hold }
    }

    /// Takes one reader out of a hold that others still have.
    fn end_joint(&self, state: &mut State, id: u64, now: Moment) -> Option<Ended> {
        let lease = state.lease.as_ref().filter(|lease| lease.hold.as_ref().is_some_and(|hold| hold.id == id))?;
        let (ending, entries, stale) = (Ending::Joint, ScheduleKeys::default(), None);
        if !lease.has_ended(now) {
            return Some(Ended { ending, entries, stale, hold: None });
        }
        // Rule L6: the hold outlived its deadline, so the whole lease ends. Rule 14: it is released when the last body is dropped.
        let lease = state.lease.take()?;
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        let users = hold.map_or(0, |hold| hold.users) + 1;
        state.ending.push(EndingToken::new(lease.token, users));
        let mut entries = lease.upkeep.entries;
        entries.tracked = state.tracked.take();
        self.changed.notify_waiters();
        Some(Ended { ending: Ending::Lost, entries, stale, hold })
    }

    /// Ends the hold `id`, and keeps its lease for the next task, or for the keeper to release.
    pub(super) fn end_dropped(self: &Arc<Self>, id: u64) -> Ended {
        let now = Moment::now();
        let mut locked = self.locked();
        let state = &mut *locked;
        if self.share.is_some() && state.leave_readers(id) {
            return self.end_in(state, id, now, true);
        }
        if let Some(lingering) = state.try_linger(id, self, now) {
            return Ended {
                ending: Ending::Lingers(lingering),
                entries: ScheduleKeys::default(),
                stale: None,
                hold: None,
            };
        }
        if !state.lease.as_ref().is_some_and(|lease| lease.keeps_out(now)) {
            state.take_from_queue(self);
        }
        let State { waiters, offers, tracked, lease, .. } = state;
        if waiters.is_empty()
            && !offers.has_late()
            && let Some(lease) = lease
            && lease.hold.as_ref().is_some_and(|hold| hold.id == id)
            && !lease.has_ended(now)
            && !lease.keeps_out(now)
            && lease.try_hand_over_after_drop()
        {
            lease.hold = None;
            let mut entries = std::mem::take(&mut lease.upkeep.entries);
            entries.tracked = tracked.take();
            return Ended { ending: Ending::Kept, entries, stale: None, hold: None };
        }
        self.end_in(state, id, now, false)
    }
}

impl State {
    /// Ends a hold that others are to be kept out behind, for this `rest`.
    fn end_to_rest(&mut self, rest: Duration, entries: ScheduleKeys, is_closed: bool) -> Ended {
        let ending = if is_closed {
            self.lease = None;
            Ending::Left
        } else {
            self.begin_rest();
            Ending::Rests(rest)
        };
        Ended { ending, entries, stale: None, hold: None }
    }
}
