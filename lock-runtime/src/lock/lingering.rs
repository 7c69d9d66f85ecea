//! Rule L9: a lease that lingers. It is kept without a hold, for the next hold here.
//!
//! A lease lingers from the end of a hold until one of these happens: the next task here takes the lease over, the linger time
//! is over, another process is known to wait, a task here wants the lock in another mode, the connection by which others would
//! be heard breaks, too many leases linger, or the manager ends. Both are steps of the
//! lock: that a task takes the lease over, and that the lease is taken for its release.

use std::time::Duration;

use super::lease::Lease;
use super::look::Trigger;
use super::{Effects, Env, Lane, Lock};
use crate::clock::{Deadline, Moment};
use crate::observe::Path;
use crate::protocol::Release;
use crate::timing::{RENEWALS_PER_LEASE, lengthened_at};

impl Lease {
    /// The end of the linger time, or of the lease, whichever comes first.
    fn may_linger_until(&self, linger: Duration, now: Moment) -> Deadline {
        mutant!(LingerUnchecked => return Deadline::new(now, linger));
        Deadline::new(now, linger).min_at(self.until, now)
    }

    pub(super) fn lingers(&self) -> bool {
        self.linger.until().is_some()
    }

    /// How much longer the lease lingers. Zero when it does not.
    pub(super) fn lingers_for(&self, now: Moment) -> Duration {
        self.linger.until().map_or(Duration::ZERO, |until| until.remaining_at(now))
    }

    /// In how long the lease has to be lengthened. `None` while no hold has used it again, or a renewal is on its way.
    pub(super) fn lengthen_due_in(&self, now: Moment) -> Option<Duration> {
        let is_due = self.linger.is_reused() && !self.upkeep.renewing;
        is_due.then(|| self.until.remaining_at(now).saturating_sub(lengthened_at(self.claim)))
    }

    /// Since when the store has confirmed the lease, if enough of it is left for a hold of this length: so much that no renewal
    /// would be due yet.
    pub(super) fn confirmed_for(&self, expire: Duration, now: Moment) -> Option<Moment> {
        let enough = expire / RENEWALS_PER_LEASE * (RENEWALS_PER_LEASE - 1);
        (self.until.remaining_at(now) >= enough).then(|| self.until.start())
    }
}

impl Lease {
    /// A task takes the lease over.
    pub(super) fn reuse_lingering(&mut self) {
        if self.lingers() {
            self.linger.end_by_use();
        }
    }
}

impl Lock {
    pub(crate) fn lingers(&self) -> bool {
        self.leases().any(Lease::lingers)
    }

    /// Ends the hold `id` and lets its lease linger, when that was asked for and nobody is known to wait.
    pub(super) fn try_linger(&mut self, id: u64, env: &dyn Env, now: Moment, out: &mut Effects) -> bool {
        let has_nobody_behind = self.waiters.is_empty() && self.entrants == 0;
        let Self { lanes, forced, .. } = self;
        let Some(lease) = lanes.iter_mut().filter_map(Lane::lease_mut).find(|lease| lease.carries(id)) else {
            return false;
        };
        let linger = lease.hold.as_ref().map(|hold| hold.linger).unwrap_or_default();
        let may_linger = !linger.is_zero()
            && lease.token.may_linger()
            && !lease.is_contended(now)
            && !lease.keeps_out(env)
            && !forced.iter().any(|forced| forced.token == lease.token)
            && has_nobody_behind
            // Whoever waits would not be heard.
            && env.keepers_connection().hears
            && env.admits_lingering(lease.linger.was_used());
        if !may_linger {
            return false;
        }
        let until = lease.may_linger_until(linger, now);
        lease.hold = None;
        lease.fresh = false;
        lease.path = Path::Linger;
        let lingering = lease.holds.linger();
        lease.linger.begin(until, lingering);
        let look_in = lease.lengthen_due_in(now).unwrap_or(Duration::MAX).min(until.remaining_at(now));
        lease.look_in(look_in, now);
        self.has_new_look = true;
        out.lingers = true;
        true
    }

    /// Takes the lease if it lingers, for its release.
    pub(crate) fn take_lingering(&mut self, env: &dyn Env) -> Option<Release> {
        let token = self.leases().find(|lease| lease.lingers())?.token.clone();
        let lease = self.take_lease(&token, |_| true)?;
        self.is_tracked = false;
        Some(lease.release(env))
    }

    /// The same when the linger time is over, or when the store may have forgotten the lease: nobody would notice a loss.
    pub(super) fn take_lingering_if_over(&mut self, trigger: Trigger, env: &dyn Env, now: Moment) -> Option<Release> {
        let lease = self.leases().find(|lease| lease.lingers())?;
        let is_over = trigger == Trigger::Verify || lease.lingers_for(now).is_zero();
        if is_over { self.take_lingering(env) } else { None }
    }

    /// Takes the lease if it lingers: it yields to others who wait. Also returns whether it was used again while it lingered.
    pub(crate) fn yield_lingering(&mut self, env: &dyn Env) -> Option<(Release, bool)> {
        mutant!(LingersOn => return None);
        let was_used = self.leases().find(|lease| lease.lingers())?.linger.was_used();
        Some((self.take_lingering(env)?, was_used))
    }
}
