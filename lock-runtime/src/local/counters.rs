//! [`Counters`]: what a manager counts, and what it reports of that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Core;
use super::repeat_limit::Warning;
use super::slot::Slot;
use crate::LockError;
use crate::error::LossReason;
use crate::lock::{EndedHold, IfBusy, Lock, ResolvedRequest};
use crate::lock_info::LockStats;
use crate::observe::{self, TimedOut, metrics};
use crate::store::Events;

/// Counts failures, and the keeper's renewals. Each increment goes with an error or a command, which costs much more than an atomic.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    timeouts: AtomicU64,
    lost: AtomicU64,
    renewals: AtomicU64,
}

impl Core {
    /// See [`LockManager::stats`](crate::LockManager::stats).
    pub(crate) fn stats(&self) -> LockStats {
        // A slot that is forgotten from now on is still in the list, with its counts.
        let (mut counts, slots) = self.table().all_with_counts();
        let (mut held, mut lingering) = (0, 0);
        for slot in &slots {
            let (of_slot, users, lingers) = slot.peek(Lock::counts);
            counts.add(of_slot);
            held += u64::from(users);
            lingering += u64::from(lingers);
        }
        let Counters { timeouts, lost, renewals } = &self.counters;
        let traffic = self.traffic();
        LockStats {
            held,
            waiting: as_u64(self.waiter_limit.waiting()),
            lingering,
            keys: as_u64(slots.len()),
            unreleased: as_u64(self.schedule().unreleased()),
            acquired: counts.holds,
            hand_overs: counts.hand_overs,
            hand_offs: counts.hand_offs,
            timeouts: timeouts.load(Ordering::Relaxed),
            lost: lost.load(Ordering::Relaxed),
            commands: traffic.commands(),
            renewals: renewals.load(Ordering::Relaxed),
            reconnects: traffic.reconnects(),
        }
    }

    /// Notes that a request ends with this `error` because the lock was busy. `seen` is for how long its holder has been known here. A
    /// single try that finds the lock busy is counted, not logged.
    pub(crate) fn note_timeout(
        &self,
        request: &ResolvedRequest,
        waited: Duration,
        error: &LockError,
        seen: Option<Duration>,
    ) {
        if request.is_part() && request.is_try() {
            // One try of several: the request may still be granted.
            return;
        }
        self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
        metrics::timed_out(request.prefix());
        if !request.is_try()
            && let Some(left_out) = self.repeat_limit.admit(Warning::TimedOut, &request.key)
        {
            let LockError::Timeout { holder, held_here, rests, .. } = error else { return };
            let (key, holder) = (&*request.key, holder.as_deref());
            let told = TimedOut { key, waited, holder, seen, left_out };
            let is_of_permits = request.share.is_some_and(|share| share.permits().is_some());
            match (rests, is_of_permits, request.if_busy == IfBusy::GoesOn, held_here) {
                (true, ..) => observe::timed_out_as_usual("rests", told),
                (_, true, ..) => observe::timed_out_as_usual("permits", told),
                (_, _, true, _) => observe::timed_out_as_usual("on_fail", told),
                (.., true) => observe::timed_out_here(told),
                (.., false) => observe::timed_out(told),
            }
        }
    }

    pub(super) fn note_loss(&self, key: &str, hold: EndedHold) {
        if hold.is_replaceable && hold.reason == LossReason::Forced {
            if let Some(left_out) = self.repeat_limit.admit(Warning::Replaced, key) {
                observe::replaced(key, hold.since.elapsed(), left_out);
            }
            return;
        }
        self.counters.lost.fetch_add(hold.users.into(), Ordering::Relaxed);
        metrics::lost(hold.prefix.of(key), hold.users.into());
        if let Some(left_out) = self.repeat_limit.admit(Warning::Lost, key) {
            observe::lost(key, hold.reason, hold.since.elapsed(), left_out);
        }
    }

    pub(crate) fn note_renewals(&self, count: usize) {
        if count > 0 {
            self.counters.renewals.fetch_add(as_u64(count), Ordering::Relaxed);
            metrics::renewed(as_u64(count));
        }
    }

    /// Warns of a hold that lasts longer than the user considers usual.
    pub(super) fn note_long_hold(&self, slot: &Slot, held_for: Duration) {
        if let Some(left_out) = self.repeat_limit.admit(Warning::HeldLong, slot.key()) {
            observe::held_long(slot.key(), held_for, left_out);
        }
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
