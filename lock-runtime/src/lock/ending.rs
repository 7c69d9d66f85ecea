//! What happens to a lease when its hold ends, is given away, or is lost; and how a lease lingers (rule L9): it is kept without a hold, for
//! the next hold here.
//!
//! A lease lingers from the end of a hold until one of these happens: the next task here takes the lease over, the linger time is over,
//! another process is known to wait, a task here wants the lock in another mode, the connection that reports waiters breaks, too many
//! leases linger, or the manager ends. A task taking the lease over and its removal for release are both steps of the lock, so only one of
//! them happens.

use std::time::Duration;

use super::hold::{ActiveHold, EndedHold};
use super::lease::{Lease, Linger};
use super::queue::pause_between;
use super::{Effects, Env, Lane, Lock, Standing};
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::observe::Path;
use crate::protocol::Release;
use crate::timing::POLL_PAUSE_AFTER_STREAK;
use crate::token::Token;

#[derive(Debug)]
pub(crate) enum Ending {
    /// The hold was lost earlier. The release is for a lease whose hold outlived its deadline: the store may still have it.
    Lost(Option<Release>),
    /// The lease stays: for the next task here, for the next hold while it lingers, for other readers that share the hold, or for the
    /// keeper to release.
    Kept,
    /// The lease ends with this release.
    Free(Release),
    /// The lease ends with this release, and then the lock rests (rule 23): others are still to be kept out, including tasks here.
    Rests(Release),
}

/// The user that ends a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) id: u64,
    pub(crate) member: u64,
    pub(crate) has_body: bool,
    /// Whether it waits for the store's reply. Otherwise it was dropped, and its body with it.
    pub(crate) waits: bool,
}

impl Lock {
    /// Ends the hold of `user`. Also returns what to report of the hold: `None` if there is nothing, or it was reported before.
    pub(crate) fn end(
        &mut self,
        user: User,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> (Ending, Option<EndedHold>) {
        let carried = |lane: &Lane| {
            let lease = lane.lease().filter(|lease| lease.carries(user.id))?;
            Some((lease.has_ended(now), lease.delay_after(!user.waits)))
        };
        let found = self.lanes.iter().enumerate().find_map(|(at, lane)| Some((at, carried(lane)?)));
        let Some((at, (has_ended, delay))) = found else { return (Ending::Lost(None), None) };
        match self.leave_readers(user.id, user.member, user.has_body, now) {
            // This reader's own time was over before the others'.
            Some(true) => return (Ending::Lost(None), None),
            // Rule L1: the hold outlived its deadline, so the whole lease ends.
            Some(false) if has_ended => return self.end_late(at, user, env, out),
            Some(false) => return (Ending::Kept, None),
            None => {}
        }
        if !has_ended && delay.is_zero() && self.try_linger(at, env, now, out) {
            return (Ending::Kept, None);
        }
        let waits_here = !self.waiters.is_empty();
        let Some(Lane { standing: Standing::Leased(lease), free_since, .. }) = self.lanes.get_mut(at) else {
            return (Ending::Lost(None), None);
        };
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        // Rule L1: the hold outlived its deadline, so the whole lease ends.
        let ended_hold = if has_ended { lease.ended_hold() } else { None };
        let (keeps_out, is_contended) = (!delay.is_zero() || lease.kept_until(env).is_some(), lease.is_contended(now));
        // Keep the lease for tasks that are asleep, but not if another process waits.
        let is_wanted_here = if is_contended { self.waiters.first_awake().is_some() } else { waits_here };
        // No task waits for this release. A task that arrives right now takes the lease over: that is one more hand-over (rule L4).
        let is_left = !waits_here && !user.waits;
        if !has_ended && !keeps_out && (is_wanted_here || is_left) && lease.try_hand_over(now) {
            lease.hold = None;
            lease.fresh = false;
            *free_since = waits_here.then_some(now);
            self.has_new_look |= lease.upkeep.look_at.take().is_some();
            return (Ending::Kept, hold);
        }
        let Some(release) = self.release_lane(at, env) else { return (Ending::Lost(None), None) };
        let release = release.with_delay(delay, now);
        self.is_tracked = false;
        if has_ended {
            return (Ending::Lost(Some(release)), ended_hold);
        }
        if keeps_out {
            return (Ending::Rests(release), hold);
        }
        if mutant!(PolledAfterStreak => false, else is_wanted_here && !env.kind().queues) {
            // Let another process have the lock: the store is polled.
            self.pauses = Some(Box::new(Deadline::new(now, pause_between(POLL_PAUSE_AFTER_STREAK))));
            self.has_new_look = true;
        }
        if release.queued && user.waits {
            // In the same step: otherwise an answer or a message would take the token for one that was given up.
            self.note_ending(release.token.clone(), 0, None);
        }
        (Ending::Free(release), hold)
    }

    /// Ends one reader's part in a hold that others still have, and whose deadline has passed.
    fn end_late(&mut self, at: usize, user: User, env: &dyn Env, out: &mut Effects) -> (Ending, Option<EndedHold>) {
        let Some(Lane { standing: Standing::Leased(mut lease), .. }) = self.remove(at) else {
            return (Ending::Lost(None), None);
        };
        out.wakes = true;
        // The reader that ends its part now has already left.
        let hold =
            lease.hold.as_ref().map(ActiveHold::as_ended).map(|hold| EndedHold { users: hold.users + 1, ..hold });
        if let Some(hold) = lease.hold.as_mut().filter(|hold| user.has_body && hold.bodies > 0) {
            // The lease is released after the end of this body too.
            hold.bodies += 1;
        }
        (Ending::Lost(self.release_after_bodies(lease, LossReason::Deadline, env)), hold)
    }

    /// Ends the hold on the lease of the lane `at`, and lets the lease linger if that was asked for and no other task or process is known
    /// to wait.
    fn try_linger(&mut self, at: usize, env: &dyn Env, now: Moment, out: &mut Effects) -> bool {
        let has_nobody_behind = self.waiters.is_empty() && self.entrants == 0;
        let Self { lanes, forced, .. } = self;
        let Some(lease) = lanes.get_mut(at).and_then(Lane::lease_mut) else { return false };
        let linger = lease.hold.as_ref().map(|hold| hold.linger).unwrap_or_default();
        let was_used = lease.linger.as_ref().is_some_and(|linger| linger.was_used);
        let may_linger = !linger.is_zero()
            && lease.token.may_linger()
            && !lease.is_contended(now)
            && lease.kept_until(env).is_none()
            && !forced.iter().any(|forced| forced.token == lease.token)
            && has_nobody_behind
            // Otherwise a waiter could not be heard.
            && env.keepers_connection().hears
            && env.admits_lingering(was_used);
        if !may_linger {
            return false;
        }
        let until = Deadline::new(now, linger);
        let until = mutant!(LingerUnchecked => until, else until.min_at(lease.until, now));
        lease.hold = None;
        lease.fresh = false;
        lease.path = Path::Linger;
        let known = lease.linger.get_or_insert_with(|| Box::new(Linger { now: None, is_reused: false, was_used }));
        known.now = Some(until);
        let look_in = lease.lengthen_due_in(now).unwrap_or(Duration::MAX).min(until.remaining_at(now));
        lease.look_in(look_in, now);
        self.has_new_look = true;
        out.lingers = true;
        true
    }

    /// Releases the lease if it lingers. Returns whether it was used again while it lingered; `None` if it does not linger.
    pub(crate) fn release_lingering(&mut self, env: &dyn Env, out: &mut Effects) -> Option<bool> {
        let at = self.lanes.iter().position(|lane| lane.lease().is_some_and(Lease::lingers))?;
        let was_used = self.lanes.get(at)?.lease()?.linger.as_ref().is_some_and(|linger| linger.was_used);
        self.is_tracked = false;
        out.releases.extend(self.release_lane(at, env));
        Some(was_used)
    }

    /// Releases the leases that lie free, if no task waits for them.
    pub(crate) fn release_unused(&mut self, env: &dyn Env, out: &mut Effects) {
        if !self.waiters.is_empty() || self.entrants > 0 {
            return;
        }
        let is_unused = |lane: &Lane| lane.is_free() && !lane.lease().is_some_and(Lease::lingers);
        while let Some(at) = self.lanes.iter().position(is_unused) {
            out.releases.extend(self.release_lane(at, env));
        }
    }

    /// Ends the hold of `user` without a release, because a ticket replaces its token (rule 24). Returns the release that undoes this, or
    /// as `Err` the one that is left to do if the hold was lost earlier. Also returns what to report of the hold.
    pub(crate) fn take_for_ticket(
        &mut self,
        user: User,
        env: &dyn Env,
        now: Moment,
    ) -> (Result<Release, Option<Release>>, Option<EndedHold>) {
        let Some(lease) = self.take_lease(|lease| lease.carries(user.id)) else { return (Err(None), None) };
        let release = Release { unused_fences: None, kept_until: None, ..lease.release(env) };
        if lease.has_ended(now) {
            // Rule L1: the hold outlived its deadline, so the whole lease ends.
            return (Err(Some(release)), lease.ended_hold());
        }
        self.note_ending(release.token.clone(), 0, None);
        (Ok(release), lease.hold.as_ref().map(ActiveHold::as_ended))
    }

    /// Ends the lease of `token`, or all leases if no `token` is given, and the holds on them.
    pub(crate) fn revoke(
        &mut self,
        token: Option<&Token>,
        reason: LossReason,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Vec<EndedHold> {
        let mut lost = Vec::new();
        while let Some(lease) = self.take_lease(|lease| token.is_none_or(|token| lease.token == *token)) {
            out.wakes = true;
            lease.note_spent_readers(env.now());
            let hold = match reason {
                LossReason::Deadline => lease.ended_hold(),
                _ => lease.hold.as_ref().map(|hold| EndedHold { reason, ..hold.as_ended() }),
            };
            if let (Some(hold), LossReason::Forced) = (&hold, reason) {
                self.note_forced(&lease.token, hold.users);
            }
            lost.extend(hold);
            out.releases.extend(self.release_after_bodies(lease, reason, env));
        }
        lost
    }

    /// The release of a lease whose hold was lost. `None` if bodies have to end first (rule 13): then the last of them sends it.
    fn release_after_bodies(&mut self, lease: Lease, reason: LossReason, env: &dyn Env) -> Option<Release> {
        let bodies = lease.hold.as_ref().map_or(0, |hold| match reason {
            // Wait for a guard as for a body: what some servers of a quorum still have keeps others out until then.
            LossReason::NotKnown if lease.share.is_none() => hold.users(),
            _ => mutant!(GuardsCountAsBodies => if hold.users() > 1 { hold.users() } else { hold.bodies }, else hold.bodies),
        });
        if mutant!(ReleasedBeforeBody => true, else bodies == 0) {
            return Some(lease.release(env));
        }
        // Rule 13: until then a new grant for its token is not a stray.
        let (kept_until, delay) = (lease.kept_until(env), lease.delay_after(true));
        self.note_ending(lease.token, bodies, kept_until);
        if let Some(ending) = self.ending.last_mut() {
            ending.delay = delay;
        }
        None
    }
}
