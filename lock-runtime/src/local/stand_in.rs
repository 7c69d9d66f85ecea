//! [`StandIn`]: the keeper, for a task that does not read an answer in time (rule L8).

use std::sync::Arc;

use super::slot::ScheduleKeys;
use super::slot::Slot;
use crate::clock::{Deadline, Moment};
use crate::protocol::Release;
use crate::store::Store as _;
use crate::timing::{FREE_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// A command is on its way, and its task has to read the answer in time. Otherwise the keeper releases what the store may have for the
/// task: the task's thread works, or its future is kept behind another one.
#[derive(Debug)]
pub(super) struct StandIn {
    slot: Arc<Slot>,
    /// Its number in the schedule. `None` when the store needs no waiting, and once it has ended.
    number: Option<u64>,
}

impl StandIn {
    /// The command is sent `now`. The keeper would send the `release`.
    pub(super) fn begin(slot: &Arc<Slot>, release: &Release, entries: ScheduleKeys, now: Moment) -> Self {
        let schedule = slot.core.schedule();
        let number = if slot.core.store().kind().is_immediate {
            schedule.cancel(entries);
            None
        } else {
            mutant!(OnlyReleasesWatched => if release.or_ticket.is_some() || release.token.is_ticket() {
                return Self { slot: Arc::clone(slot), number: None };
            });
            let by = Self::answered_by(slot, now).later_by(FREE_PATIENCE).on_timer();
            // The slot repeats or withdraws the ask that goes along.
            let release = Release { again: None, ..release.clone() };
            Some(schedule.begin_release(slot, release, by, entries))
        };
        Self { slot: Arc::clone(slot), number }
    }

    /// Until when a verb that is sent `now` is answered, or has failed: as long as two commands may take, which a release may need. No
    /// longer than others wait for a task that is late, unless the servers are so far away: the keeper's release would hide a loss from
    /// a task that is not late.
    pub(super) fn answered_by(slot: &Slot, now: Moment) -> Deadline {
        mutant!(StandsInTooSoon => return Deadline::new(now, slot.core.settings().command_timeout));
        mutant!(FarReleaseCutShort => return Deadline::new(now, UNUSED_LEASE_KEPT_FOR));
        // The same for all locks: in this order their tasks become late.
        let far = slot.core.store().round_trip() * 2;
        Deadline::new(now, (slot.core.settings().command_timeout * 2).min(UNUSED_LEASE_KEPT_FOR.max(far)))
    }

    /// Its task has read the answer. Returns whether it was in time.
    pub(super) fn end(&mut self) -> bool {
        self.number.take().is_none_or(|number| self.slot.core.schedule().end_release(number))
    }

    /// Its task is gone, or has read no answer: has the keeper send the `release` now, unless it has done so.
    pub(super) fn release(&mut self, release: &Release) {
        match self.number.take() {
            Some(number) => self.slot.core.schedule().repeat_release(number, &release.key),
            None => self.slot.core.release_later(Release { again: None, ..release.clone() }),
        }
    }
}

impl Drop for StandIn {
    /// Its task is gone, and sees to the rest.
    fn drop(&mut self) {
        self.end();
    }
}
