//! Late tasks (rule L7): each was called, and did not come.

use std::time::Duration;

use super::{Late, Offer};
use crate::attendance::patience_with;
use crate::clock::{Deadline, Moment};
use crate::lock::readers::Joined;
use crate::lock::request::ResolvedRequest;
use crate::lock::{Effects, Env, Lock, Standing};
use crate::protocol::Release;
use crate::timing::{STEP_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// What becomes of a late task that is polled at last.
#[derive(Debug)]
pub(crate) enum Rejoined {
    /// The task has the turn again.
    Turn,
    /// The task has the hold of other readers together with them.
    Joined(Joined),
    /// The task waits again. Others wait so long for it when they call it.
    Waits { patience: Duration, is_too_late: bool },
    /// The lock is forgotten. The task begins anew.
    Anew,
}

impl Lock {
    /// Notes that a task did not come when it was called. After a shutdown nobody waits for the task, which is told of that when it comes.
    pub(in crate::lock) fn note_late(&mut self, id: u64, env: &dyn Env, now: Moment) {
        if !env.is_closed() {
            self.offers.note_late(id, now);
        }
    }

    /// Notes as late the task that did not take up its turn. Returns the id of the turn, which is to be passed on, and the release of a
    /// lease that others wait for, or that no task here takes up. `None` when the task came after all.
    pub(crate) fn note_late_turn(&mut self, env: &dyn Env, out: &mut Effects) -> Option<(u64, Option<Release>)> {
        mutant!(LateTurnKept => return None);
        let now = env.now();
        let id = self.turn.filter(|_| !self.is_held())?;
        match self.offers.offer {
            Offer::Noticed(deadline) | Offer::Acting(deadline) if deadline.remaining_at(now).is_zero() => {}
            Offer::Missed(_) => {}
            _ => return None,
        }
        if !self.offers.is_releasing {
            self.note_late(id, env, now);
        }
        out.takes_turn = true;
        let is_idle = self.offers.is_idle(now);
        let released = self.has_contention(now) || is_idle;
        let kept_for = UNUSED_LEASE_KEPT_FOR.saturating_sub(STEP_PATIENCE);
        self.offers.idle.get_or_insert_with(|| Box::new(Deadline::new(now, kept_for)));
        let release = if released { self.take_granted(env) } else { None };
        if release.is_some() {
            self.offers.idle = None;
        }
        self.offers.offer = Offer::Missed(Deadline::new(now, Duration::ZERO));
        if self.offers.is_for_all(is_idle) {
            self.offer_to_all(now, out);
        }
        out.wakes = true;
        Some((id, release))
    }

    /// Takes in that the late task `id` is polled at last.
    pub(crate) fn rejoin(&mut self, id: u64, request: &ResolvedRequest, env: &dyn Env, out: &mut Effects) -> Rejoined {
        if self.is_forgotten() {
            return Rejoined::Anew;
        }
        let now = env.now();
        let since = self.offers.late.remove(&id).map(|late| late.since);
        let patience = patience_with(since, now);
        if request.joins_readers() {
            // At its old place the task may have been called to a hold that no others may join any more.
            let joined = self.join_called(id, request, now);
            if let Some(joined) = joined.or_else(|| self.join(request, now)) {
                return Rejoined::Joined(joined);
            }
        }
        let may_take_turn = match self.turn {
            None => true,
            Some(other) => {
                !self.is_held() && !self.offers.is_taken_up() && (other > id || self.offers.late.contains_key(&other))
            }
        };
        let is_too_late = request.is_try() && self.is_for_waiters();
        if !may_take_turn || is_too_late {
            return Rejoined::Waits { patience, is_too_late };
        }
        if let Some(other) = self.turn.replace(id) {
            self.note_late(other, env, now);
            out.takes_turn = true;
        }
        self.offers.reset();
        self.reuse_lingering();
        self.offers.patience = Some(Box::new(patience));
        Rejoined::Turn
    }

    /// Takes all waiters, to call them at once. The first that comes takes the turn, and the others wait at their old
    /// places. A blocked thread may have hundreds of tasks here, and others would have to wait out the patience for
    /// each of them.
    fn offer_to_all(&mut self, now: Moment, out: &mut Effects) {
        self.offers.late.extend(self.waiters.ids().map(|id| (id, Late::since(now))));
        out.calls.extend(self.waiters.take_all());
    }

    /// Whether what this process has was asked for by a task that waits, or was held since. A single try that comes late gets nothing of
    /// that: the lock was held after the try began (promise 7).
    fn is_for_waiters(&self) -> bool {
        mutant!(LateTryTakesAll => return false);
        match &self.standing {
            Standing::Nothing => false,
            Standing::Asking(pending) => pending.is_for_waiter(),
            Standing::Leased(lease) => lease.is_for_waiters,
        }
    }

    /// Offers what is granted to the late tasks: the first that is polled takes it.
    pub(in crate::lock) fn offer_to_late(&mut self, env: &dyn Env) -> bool {
        let Some(id) = self.offers.first_late().filter(|_| self.is_granted()) else { return false };
        let was_missed = self.offers.is_missed();
        self.turn = Some(id);
        self.offers.make_to_next(None);
        if was_missed {
            self.offers.offer = Offer::Missed(Deadline::new(env.now(), Duration::ZERO));
        }
        self.track();
        true
    }

    /// Takes what is granted, for its release.
    fn take_granted(&mut self, env: &dyn Env) -> Option<Release> {
        match std::mem::take(&mut self.standing) {
            Standing::Leased(lease) => Some(lease.release(env)),
            Standing::Asking(pending) if pending.is_granted() => Some(pending.withdrawal(env)),
            other => {
                self.standing = other;
                None
            }
        }
    }
}
