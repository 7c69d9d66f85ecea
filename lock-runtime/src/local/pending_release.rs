//! [`PendingRelease`]: a lease that the store may have for a task that waits for an answer (rule 1).

use std::sync::Arc;

use super::slot::{ScheduleKeys, Slot};
use crate::clock::{Deadline, Moment};
use crate::protocol::Release;
use crate::store::Store as _;
use crate::timing::{FREE_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// A command is in flight, and its task has to read the answer in time. Otherwise the keeper sends the release: the task's thread is
/// blocked, or its future is not polled. Dropping this sends the release in the background, too.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    slot: Arc<Slot>,
    release: Release,
    /// Its number in the schedule. `None` for an immediate store, and once it has ended.
    number: Option<u64>,
    /// Whether its task has read the answer, or sends the release itself.
    is_answered: bool,
}

impl PendingRelease {
    pub(super) fn begin(slot: &Arc<Slot>, release: Release, entries: ScheduleKeys, now: Moment) -> Self {
        let schedule = slot.core.schedule();
        let slot = Arc::clone(slot);
        mutant!(OnlyReleasesWatched => if release.or_ticket.is_some() || release.token.is_ticket() {
            return Self { slot, release, number: None, is_answered: false };
        });
        let number = if slot.core.store().kind().is_immediate {
            schedule.cancel(entries);
            None
        } else {
            let by = Self::answered_by(&slot, now).later_by(FREE_PATIENCE).on_timer();
            Some(schedule.begin_release(&slot, release.clone(), by, entries))
        };
        Self { slot, release, number, is_answered: false }
    }

    /// Leaves only the overdue case to the keeper: the task itself sends the release when it is dropped.
    pub(super) fn by_task(mut self) -> Self {
        self.is_answered = true;
        self
    }

    /// Until when a verb that is sent `now` is answered, or has failed: as long as two commands may take, because a release may need two.
    /// But no longer than others wait for a late task, unless the servers are that far away: the keeper's release would hide a loss from a
    /// task that is not late.
    pub(super) fn answered_by(slot: &Slot, now: Moment) -> Deadline {
        mutant!(StandsInTooSoon => return Deadline::new(now, slot.core.settings().command_timeout));
        mutant!(FarReleaseCutShort => return Deadline::new(now, UNUSED_LEASE_KEPT_FOR));
        // The same time for all locks, so their tasks become late in this order.
        let far = slot.core.store().round_trip() * 2;
        Deadline::new(now, (slot.core.settings().command_timeout * 2).min(UNUSED_LEASE_KEPT_FOR.max(far)))
    }

    pub(crate) fn release(&self) -> &Release {
        &self.release
    }

    /// Notes that the task has read the answer. Returns whether that is the outcome: the keeper has not sent the release meanwhile.
    pub(crate) fn on_answer(mut self) -> bool {
        self.is_answered = true;
        self.slot.on_release_ended(&self.release);
        self.number.take().is_none_or(|number| self.slot.core.schedule().end_release(number))
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let Self { slot, release, number, is_answered } = self;
        mutant!(GiftLeft => *is_answered |= release.or_ticket.is_some());
        if !*is_answered {
            slot.on_release_ended(release);
        }
        match number.take() {
            Some(number) if *is_answered => drop(slot.core.schedule().end_release(number)),
            Some(number) => slot.core.schedule().repeat_release(number, &release.key),
            None if *is_answered => {}
            None => slot.core.release_later(release.clone()),
        }
    }
}

impl Slot {
    /// Releases a lease for a task that did not read the answer to its release in time (rule 1).
    pub(crate) fn release_for_late_task(self: &Arc<Self>, release: Release) {
        mutant!(LateReleaseLeft => return);
        self.on_release_ended(&release);
        self.core.release_later(release);
    }

    /// No task waits for this release any more: withdraws what the store may have granted under its token meanwhile.
    fn on_release_ended(self: &Arc<Self>, release: &Release) {
        if release.queued && self.end_use(&release.token).is_some_and(|ended| ended.may_be_granted_again) {
            self.core.withdraw(Release::withdrawal(&release.key, &release.token, release.claim));
        }
    }
}
