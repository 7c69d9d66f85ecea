//! [`Lease`]: what the process owns in the store.

use std::sync::Arc;
use std::time::Duration;

use super::Env;
use super::hold::{ActiveHold, EndedHold};
use super::pending_ask::PendingAsk;
use super::request::ResolvedRequest;
use crate::clock::{Deadline, Drift, Moment};
use crate::error::LossReason;
use crate::observe::{Path, metrics};
use crate::protocol::{Grant, Release};
use crate::share::{CountedLease, Share};
use crate::timing::{CLAIM, ENOUGH_LEASE, SHORTEST_HOLD, STREAK_TIME, WAITERS_KNOWN_FOR};
use crate::token::Token;

/// Rule L4: once another process is known to wait, a streak of hand-overs ends after this number, or after this time.
const STREAK_HAND_OVERS: u32 = 64;

/// A lease that the store granted.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) claim: Duration,
    /// The store has confirmed the lease until this time.
    pub(crate) until: Deadline,
    /// Since when a push alone tells of the lease. `None` when an answer of the store does.
    /// Boxed: most grants are answers.
    pub(crate) hinted: Option<Box<Moment>>,
    /// Whether the task that acts got the lease, or its confirmation, from the store itself.
    pub(crate) fresh: bool,
    pub(crate) hold: Option<ActiveHold>,
    /// How the next hold comes by the lease.
    pub(crate) path: Path,
    /// Counts the holds of the lease.
    pub(crate) holds: metrics::Holds,
    /// The last owner, when its lease had ended without a release. It is told with the first hold. Boxed: that is rare.
    pub(crate) dead_owner: Option<Box<Token>>,
    pub(crate) fences: Fences,
    /// Boxed: nobody waits for most locks.
    pub(crate) contention: Option<Box<Contention>>,
    pub(super) linger: Linger,
    /// Whether its ask waited in the store's queue, or was repeated by the keeper.
    queued: bool,
    pub(crate) upkeep: RenewalState,
    /// Counts a lease that shares the lock.
    pub(crate) counted: Option<CountedLease>,
}

/// The state of the keeper's work on a lease.
#[derive(Debug, Default)]
pub(crate) struct RenewalState {
    /// When the keeper looks at the lease.
    pub(crate) look_at: Option<Box<Deadline>>,
    /// Whether a renewal is on its way.
    pub(crate) renewing: bool,
    /// Whether the store may have forgotten the lease after that renewal was sent.
    pub(crate) doubtful: bool,
    pub(crate) failures: u32,
    /// Whether the keeper's last renewal armed the alarm, and the alarm has not come since.
    pub(crate) is_armed: bool,
    /// How much longer than the lease is confirmed the store was asked to keep it. It may not have answered.
    pub(crate) asked_longer: Duration,
}

/// The fencing tokens that are reserved and not yet used: `next..end`. All that were used are smaller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fences {
    next: u64,
    end: u64,
}

impl Fences {
    pub(crate) fn new(first: u64, count: u32) -> Self {
        Self { next: first, end: first + u64::from(count) }
    }

    /// Whether all that were drawn before are smaller.
    pub(super) fn are_below(self, first: u64) -> bool {
        self.end <= first
    }

    /// Those that are left, and all up to `drawn`, are not used.
    pub(super) fn forget_up_to(&mut self, drawn: u64) {
        self.end = self.end.max(drawn.saturating_add(1));
        self.next = self.end;
    }

    pub(crate) fn take(&mut self) -> Option<u64> {
        let token = self.next;
        mutant!(SameFence => return (token < self.end).then_some(token));
        (token < self.end).then(|| {
            self.next += 1;
            token
        })
    }

    pub(crate) fn is_empty(self) -> bool {
        self.next >= self.end
    }

    /// The last reserved number and the last used number, when they differ.
    fn unused(self) -> Option<(u64, u64)> {
        (!self.is_empty()).then(|| (self.end - 1, self.next - 1))
    }
}

/// Another process waits: since when, when that was last heard, and how many hand-overs there were meanwhile.
#[derive(Debug)]
pub(crate) struct Contention {
    since: Moment,
    heard: Moment,
    hand_overs: u32,
}

/// What a lease knows of its lingering. Boxed: a lease that never lingers has no room for it.
#[derive(Debug, Default)]
pub(super) struct Linger(Option<Box<Facts>>);

#[derive(Debug, Default)]
struct Facts {
    /// Until when the lease lingers, while it does.
    now: Option<(Deadline, metrics::Lingering)>,
    /// Whether a hold has begun on the lease while it lingered, and the lease was not lengthened since.
    is_reused: bool,
    /// Whether a hold has begun on the lease while it lingered, ever.
    was_used: bool,
}

impl Lease {
    pub(crate) fn new(pending: &PendingAsk, grant: &Grant, env: &dyn Env) -> Self {
        Self {
            token: pending.token.clone(),
            share: pending.share,
            claim: pending.claim,
            until: grant.until,
            hinted: None,
            fresh: true,
            hold: None,
            path: if pending.was_pushed() { Path::HandOff } else { Path::Store },
            holds: metrics::Holds::new(),
            dead_owner: pending.dead_owner(env).map(Box::new),
            fences: grant.fence.map(|first| Fences::new(first, pending.fences)).unwrap_or_default(),
            contention: pending.is_contended_after(grant).then(|| Contention::since(env.now()).into()),
            linger: Linger::default(),
            // The answer to the ask may still come, and grant the token once more: a task that is late reads it.
            queued: pending.may_be_asked_for_again() || pending.is_unanswered(),
            upkeep: RenewalState::default(),
            counted: None,
        }
    }

    /// Whether the lease carries the hold `id`.
    pub(crate) fn carries(&self, id: u64) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.id == id)
    }

    /// Starts the hold `id`.
    pub(super) fn carry(
        &mut self,
        id: u64,
        path: Path,
        holding: metrics::Holding,
        request: &ResolvedRequest,
        now: Moment,
    ) {
        let mut hold = ActiveHold::new(id, path, holding, request, now);
        let is_whole = self.is_whole_for(&hold, now);
        let inherited = if path == Path::Linger && !is_whole { self.confirmed_for(hold.expire, now) } else { None };
        hold.confirmed = inherited.or(is_whole.then_some(now));
        hold.is_inherited = inherited.is_some();
        self.hold = Some(hold);
    }

    /// Rule S8: whether one more hold may start without a command. For the first hold the store has decided.
    pub(super) fn has_room(&self) -> bool {
        mutant!(HandOverUncounted => return true);
        let sharing = self.share.zip(self.counted.as_ref()).filter(|_| self.path == Path::HandOver);
        sharing.is_none_or(|(share, counted)| share.fits_beside(counted.others()))
    }

    /// Whether the lease needs no confirmation for `hold`, which starts `now`.
    pub(crate) fn is_whole_for(&self, hold: &ActiveHold, now: Moment) -> bool {
        self.hinted.is_none() && self.covers(hold.expire, hold.renew, now)
    }

    fn covers(&self, expire: Duration, renew: bool, now: Moment) -> bool {
        self.until.remaining_at(now) >= expire || (!renew && self.fresh && self.claim >= expire)
    }

    /// Rule 22: whether the keeper confirms a hold for `request` soon after it has started. The others are confirmed before, when a
    /// push alone tells of the lease: the keeper has no reason to, or it may not see a hold that is over at once.
    fn is_confirmed_later(&self, request: &ResolvedRequest, now: Moment) -> bool {
        self.path != Path::Linger && !self.covers(request.expire, request.renew, now)
    }

    /// Rule L1: whether the lease has enough time left for a hold to start on it.
    pub(crate) fn is_good_for(&self, request: &ResolvedRequest, now: Moment) -> bool {
        mutant!(NoLeaseCheck => return true);
        mutant!(LingerUnchecked => if self.path == Path::Linger {
            return true;
        });
        if self.hinted.is_some() && !self.is_confirmed_later(request, now) {
            mutant!(PushCountsAsAnswer => return true);
            return false;
        }
        // It may have been asked for by a task that wanted less and gave up.
        let is_fresh = self.fresh && self.claim >= request.lease().min(CLAIM);
        let enough = if is_fresh { SHORTEST_HOLD } else { (request.expire / 2).min(ENOUGH_LEASE) };
        self.until.remaining_at(now) >= enough.max(request.at_least())
    }

    /// How long the grant took, when the lease was over before it came. The allowance for `drift` counts. Of a push nothing is known
    /// before it is confirmed.
    pub(crate) fn outlived(&self, now: Moment, drift: Drift) -> Option<Duration> {
        mutant!(OutlivedSinceAsk => {
            let took = now.since(self.until.start());
            return (self.fresh && self.hold.is_none() && took >= drift.trusted(self.claim)).then_some(took);
        });
        // The end may be counted from an ask that came long before the grant. A grant that nothing dates has no span.
        let over = now.since(self.until.start()).checked_sub(self.until.span())?;
        let is_dated = self.hinted.is_none() && !self.until.span().is_zero();
        (self.fresh && self.hold.is_none() && is_dated).then(|| drift.trusted(self.claim) + over)
    }

    /// The end of the hold on this lease: what the store has confirmed, but not beyond the hold's own end.
    pub(crate) fn ends(&self, now: Moment) -> Option<Deadline> {
        self.hold.as_ref().map(|hold| self.until.min_at(hold.ends(now), now))
    }

    /// The latest end that the request of a hold, or of a reader that has a part in it, allows.
    pub(crate) fn latest_end_for(&self, member: u64, now: Moment) -> Option<Deadline> {
        if member > 0 { self.reader_limit(member, now) } else { self.hold.as_ref()?.latest_end() }
    }

    /// Until when others are to be kept out, also when the hold has ended (rule 23). `None` when that is over.
    pub(crate) fn kept_until(&self, env: &dyn Env) -> Option<Box<Deadline>> {
        mutant!(RestSkipped => return None);
        self.hold.as_ref()?.kept_until.clone().filter(|until| !until.remaining_at(env.now()).is_zero())
    }

    pub(crate) fn keeps_out(&self, env: &dyn Env) -> bool {
        self.kept_until(env).is_some()
    }

    /// Why the hold on this lease is over, once its deadline has passed.
    pub(crate) fn reason_of_end(&self) -> LossReason {
        let is_spent = |hold: &&ActiveHold| hold.is_covered_by(self.until) && hold.is_covered_by(hold.own);
        self.hold.as_ref().filter(is_spent).map_or(LossReason::Deadline, |_| LossReason::MaxHold)
    }

    /// What is told of the hold, whose deadline has passed.
    pub(crate) fn ended_hold(&self) -> Option<EndedHold> {
        let (hold, reason) = (self.hold.as_ref()?, self.reason_of_end());
        if let (Some(terms), LossReason::MaxHold) = (&hold.terms, reason) {
            terms.note_spent();
        }
        Some(EndedHold { reason, ..hold.as_ended() })
    }

    /// Whether what is known of the lease was asked for, or pushed, after `sent`.
    pub(crate) fn is_confirmed_after(&self, sent: Moment) -> bool {
        mutant!(LateRefusalCounts => return false);
        !self.hinted.as_deref().copied().unwrap_or(self.until.start()).since(sent).is_zero()
    }

    /// Lengthens the lease. `false` when its hold has ended before (rule 13: a hold whose deadline has passed does not
    /// come back).
    #[must_use]
    pub(crate) fn confirm(&mut self, until: Deadline, now: Moment) -> bool {
        self.hinted = None;
        if self.ends(now).is_some_and(|ends| ends.remaining_at(now).is_zero()) {
            return false;
        }
        if self.until.remaining_at(now).is_zero() {
            self.forget_lapsed_fences();
        }
        let in_store_until = self.in_store_until();
        self.until = self.until.max_at(until, now);
        self.upkeep.asked_longer = in_store_until.later_than(self.until, now);
        true
    }

    /// Rule 19: the lease may have lapsed, so the reserved fencing tokens are forgotten; others may have drawn since.
    fn forget_lapsed_fences(&mut self) {
        mutant!(LapsedFencesKept => return);
        self.fences.forget_up_to(0);
    }

    /// Rule 20: a body inside of the hold has drawn a greater token than those that are reserved.
    pub(crate) fn forget_smaller_fences(&mut self, drawn: u64) {
        mutant!(SmallerFencesKept => return);
        self.fences.forget_up_to(drawn);
    }

    /// Rule S6: other owners of a lock that is shared draw meanwhile. A token that was drawn for a task that gave up would be smaller
    /// than theirs when a later hold used it.
    pub(crate) fn forget_shared_fences(&mut self) {
        mutant!(SharedFencesKept => return);
        if self.share.is_some() {
            self.fences.forget_up_to(0);
        }
    }

    /// Notes that others wait. Returns whether the keeper is to look when that is over.
    #[must_use]
    pub(super) fn note_contention(&mut self, env: &dyn Env) -> bool {
        let now = env.now();
        let is_known = self.is_contended(now);
        self.contention.get_or_insert_with(|| Contention::since(now).into()).heard = now;
        !is_known && self.contention_ends_in(now).is_some()
    }

    /// Whether others are known to wait.
    pub(crate) fn is_contended(&self, now: Moment) -> bool {
        mutant!(WaiterNeverGone => return self.contention.is_some());
        self.contention.is_some() && (self.share != Some(Share::READ) || self.contention_ends_in(now).is_some())
    }

    /// Rule S5: in how long the others count as gone of whom readers have heard, if they are not heard of again. Any other lease ends
    /// with its hold, or soon after, and what it knows ends with it.
    pub(super) fn contention_ends_in(&self, now: Moment) -> Option<Duration> {
        let contention = self.contention.as_ref().filter(|_| self.share == Some(Share::READ))?;
        let left = WAITERS_KNOWN_FOR.saturating_sub(now.since(contention.heard));
        (!left.is_zero()).then_some(left)
    }

    /// Counts a hand-over. `false` when another process is next (rule L4: a streak of hand-overs is bounded).
    pub(crate) fn try_hand_over(&mut self, now: Moment) -> bool {
        mutant!(StreakWithoutBound => return true);
        if self.share == Some(Share::READ) {
            // Rule S5: readers that came after a writer wait for it.
            return !self.is_contended(now);
        }
        let Some(contention) = &mut self.contention else {
            return true;
        };
        contention.hand_overs += 1;
        contention.hand_overs <= STREAK_HAND_OVERS && now.since(contention.since) < STREAK_TIME
    }

    /// Whether the hold that it carries is over by now.
    pub(crate) fn has_ended(&self, now: Moment) -> bool {
        mutant!(LateHandOver => return false);
        self.ends(now).is_none_or(|ends| ends.remaining_at(now).is_zero())
    }

    /// The token and the claim for an ask by the keeper. From now on the store may be asked for the token even after
    /// its release.
    pub(crate) fn expose(&mut self) -> (Token, Duration) {
        self.queued = true;
        (self.token.clone(), self.claim)
    }

    pub(crate) fn release(&self, env: &dyn Env) -> Release {
        Release {
            key: Arc::clone(env.key()),
            token: self.token.clone(),
            share: self.share,
            claim: self.claim,
            unused_fences: self.fences.unused(),
            again: None,
            contended: self.contention.is_some(),
            beside_others: false,
            queued: self.queued,
            // Rule 1: a release is repeated until 2.5 s after the last instant at which the store can have the lease.
            repeat_until: self.in_store_until().later_by(CLAIM),
            kept_until: self.kept_until(env),
            or_ticket: None,
        }
    }
}

impl Contention {
    fn since(now: Moment) -> Self {
        Self { since: now, heard: now, hand_overs: 0 }
    }
}

impl Linger {
    /// Notes that the lease was lengthened.
    pub(super) fn on_lengthened(&mut self) {
        if let Some(facts) = &mut self.0 {
            facts.is_reused = false;
        }
    }

    /// The lease begins to linger.
    pub(super) fn begin(&mut self, until: Deadline, lingering: metrics::Lingering) {
        self.0.get_or_insert_default().now = Some((until, lingering));
    }

    /// A hold begins on the lease, which lingered.
    pub(super) fn end_by_use(&mut self) {
        let facts = self.0.get_or_insert_default();
        (facts.now, facts.is_reused, facts.was_used) = (None, true, true);
    }

    /// The end of the linger time, while the lease lingers.
    pub(super) fn until(&self) -> Option<Deadline> {
        self.0.as_ref()?.now.as_ref().map(|(until, _)| *until)
    }

    pub(super) fn is_reused(&self) -> bool {
        self.0.as_ref().is_some_and(|facts| facts.is_reused)
    }

    pub(super) fn was_used(&self) -> bool {
        self.0.as_ref().is_some_and(|facts| facts.was_used)
    }
}

#[cfg(test)]
mod tests;
