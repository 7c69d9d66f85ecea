//! [`Lease`]: what the process owns in the store.

use std::sync::Arc;
use std::time::Duration;

use super::Env;
use super::hold::{ActiveHold, EndedHold};
use super::pending_ask::PendingAsk;
use super::request::ResolvedRequest;
use crate::clock::{Deadline, Drift, Moment};
use crate::error::LossReason;
use crate::observe::Path;
use crate::protocol::{Grant, Release, Renewal};
use crate::share::{CountedLease, Share, SharedLeases};
use crate::timing::{CLAIM, ENOUGH_LEASE, SHORTEST_HOLD, STREAK_TIME, WAITERS_KNOWN_FOR, lengthened_at};
use crate::token::Token;

/// Rule L4: once another process is known to wait, a streak of hand-overs ends after this many, or after this time.
const STREAK_HAND_OVERS: u32 = 64;

#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) claim: Duration,
    /// Until when the store has confirmed the lease.
    pub(crate) until: Deadline,
    /// Since when the lease has been known only from a push. `None` once an answer of the store confirms it. Boxed: most grants are
    /// answers.
    pub(crate) hinted: Option<Box<Moment>>,
    /// Whether the lease, or its confirmation, has just come from the store, for the task that acts.
    pub(crate) fresh: bool,
    pub(crate) hold: Option<ActiveHold>,
    /// How the next hold gets the lease.
    pub(crate) path: Path,
    /// The last owner, if its lease ended without a release. Reported with the first hold. Boxed: that is rare.
    pub(crate) dead_owner: Option<Box<Token>>,
    pub(crate) fences: Fences,
    /// Boxed: no one waits for most locks.
    pub(crate) contention: Option<Box<Contention>>,
    /// Boxed: most leases never linger.
    pub(super) linger: Option<Box<Linger>>,
    /// Whether its ask waited in the store's queue, or was repeated by the keeper: the store may be asked for the token even after its
    /// release.
    pub(super) queued: bool,
    pub(crate) upkeep: RenewalState,
    pub(crate) counted: Option<CountedLease>,
}

#[derive(Debug, Default)]
pub(crate) struct RenewalState {
    pub(crate) look_at: Option<Box<Deadline>>,
    /// Whether a renewal is in flight.
    pub(crate) renewing: bool,
    /// Whether the store may have forgotten the lease since that renewal was sent.
    pub(crate) doubtful: bool,
    pub(crate) failures: u32,
    /// Whether the keeper's last renewal armed the alarm, and the alarm has not fired since.
    pub(crate) is_armed: bool,
    /// How much longer than confirmed the store was asked to keep the lease. The answer may be lost.
    pub(crate) asked_longer: Duration,
}

/// The fencing tokens that are reserved and not yet used: `next..end`. All used ones are smaller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fences {
    next: u64,
    pub(super) end: u64,
}

impl Fences {
    pub(crate) fn new(first: u64, count: u32) -> Self {
        Self { next: first, end: first + u64::from(count) }
    }

    /// Drops the reserved numbers, and all numbers up to `drawn`.
    pub(crate) fn forget_up_to(&mut self, drawn: u64) {
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

    /// The last reserved number and the last used number, if they differ.
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

/// What a lease knows of its lingering (rule L9): it is kept without a hold, for the next hold here.
#[derive(Debug)]
pub(super) struct Linger {
    /// Until when the lease lingers, while it does.
    pub(super) now: Option<Deadline>,
    /// Whether a hold began on the lingering lease, and the lease has not been lengthened since.
    pub(super) is_reused: bool,
    /// Whether a hold ever began on the lingering lease.
    pub(super) was_used: bool,
}

impl Lease {
    /// The lease of a grant, which is `hinted` if it was pushed.
    pub(crate) fn new(pending: &PendingAsk, grant: &Grant, hinted: Option<Box<Moment>>, env: &dyn Env) -> Self {
        Self {
            token: pending.token.clone(),
            share: pending.share,
            claim: pending.claim,
            until: grant.until,
            hinted,
            fresh: true,
            hold: None,
            path: if pending.was_pushed { Path::HandOff } else { Path::Store },
            dead_owner: pending.dead_owner(env).map(Box::new),
            fences: grant.fence.map(|first| Fences::new(first, pending.fences)).unwrap_or_default(),
            contention: (grant.contended || pending.contended).then(|| Contention::since(env.now()).into()),
            linger: None,
            // The answer to the ask may still arrive, and grant the token once more, if its task reads it late.
            queued: pending.may_be_asked_for_again() || pending.is_unanswered(),
            upkeep: RenewalState::default(),
            counted: env.leases().map(SharedLeases::count),
        }
    }

    pub(crate) fn carries(&self, id: u64) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.id == id)
    }

    /// Whether the lease needs no confirmation for a hold that starts `now`, lasts for `expire`, and is renewed or not.
    pub(crate) fn is_whole_for(&self, expire: Duration, renew: bool, now: Moment) -> bool {
        self.hinted.is_none() && self.covers(expire, renew, now)
    }

    fn covers(&self, expire: Duration, renew: bool, now: Moment) -> bool {
        self.until.remaining_at(now) >= expire || (!renew && self.fresh && self.claim >= expire)
    }

    /// Rule L1: whether the lease has enough time left for a hold to start on it.
    pub(crate) fn is_good_for(&self, request: &ResolvedRequest, now: Moment) -> bool {
        mutant!(NoLeaseCheck => return true);
        mutant!(LingerUnchecked => if self.path == Path::Linger {
            return true;
        });
        // Rule 16: a lease known only from a push must be confirmed. The keeper does that soon after the start of a hold. The exceptions
        // are confirmed before it: the keeper would have no reason to, or it may not see a hold that ends at once.
        let is_confirmed_later = self.path != Path::Linger && !self.covers(request.expire, request.renew, now);
        if self.hinted.is_some() && !is_confirmed_later {
            return mutant!(PushCountsAsAnswer => true, else false);
        }
        // It may have been asked for by a task that wanted less and gave up.
        let is_fresh = self.fresh && self.claim >= request.lease().min(CLAIM);
        let enough = if is_fresh { SHORTEST_HOLD } else { (request.expire / 2).min(ENOUGH_LEASE) };
        self.until.remaining_at(now) >= enough.max(request.at_least())
    }

    /// How long the grant took, if the lease was over before it arrived. Includes the allowance for `drift`. A push says nothing until it
    /// is confirmed.
    pub(crate) fn outlived(&self, now: Moment, drift: Drift) -> Option<Duration> {
        mutant!(OutlivedSinceAsk => {
            let took = now.since(self.until.start());
            return (self.fresh && self.hold.is_none() && took >= drift.trusted(self.claim)).then_some(took);
        });
        // The end may be counted from an ask long before the grant. A grant that nothing dates has no span.
        let over = now.since(self.until.start()).checked_sub(self.until.span())?;
        let is_dated = self.hinted.is_none() && !self.until.span().is_zero();
        (self.fresh && self.hold.is_none() && is_dated).then(|| drift.trusted(self.claim) + over)
    }

    /// How long until the hold on this lease ends: what the store has confirmed, but not beyond the hold's own end.
    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        self.hold.as_ref().map(|hold| self.until.remaining_at(now).min(hold.left(now)))
    }

    /// Until when others are to be kept out, even after the hold has ended (rule 23). `None` once that is over.
    pub(crate) fn kept_until(&self, env: &dyn Env) -> Option<Box<Deadline>> {
        mutant!(RestSkipped => return None);
        self.hold.as_ref()?.kept_until.clone().filter(|until| !until.remaining_at(env.now()).is_zero())
    }

    /// For how long the lock rests if the body of its hold was dropped before its end (rule 23).
    pub(crate) fn delay_after(&self, is_dropped: bool) -> Duration {
        self.hold.as_ref().filter(|_| is_dropped).map_or(Duration::ZERO, ActiveHold::lock_delay)
    }

    /// What to report of the hold, whose deadline has passed.
    pub(crate) fn ended_hold(&self) -> Option<EndedHold> {
        let hold = self.hold.as_ref()?;
        if !hold.is_covered_by(self.until) || !hold.is_covered_by(hold.own) {
            return Some(hold.as_ended());
        }
        if let Some(terms) = &hold.terms {
            terms.note_spent();
        }
        Some(EndedHold { reason: LossReason::MaxHold, ..hold.as_ended() })
    }

    /// Whether what is known of the lease was asked for, or pushed, after `sent`.
    pub(crate) fn is_confirmed_after(&self, sent: Moment) -> bool {
        mutant!(LateRefusalCounts => return false);
        !self.hinted.as_deref().copied().unwrap_or(self.until.start()).since(sent).is_zero()
    }

    /// Lengthens the lease. `false` if its hold has already ended (rule 13: a hold whose deadline has passed does not come back).
    #[must_use]
    pub(crate) fn confirm(&mut self, until: Deadline, now: Moment) -> bool {
        self.hinted = None;
        if self.left(now).is_some_and(|left| left.is_zero()) {
            return false;
        }
        // Rule 8: the lease may have lapsed, so forget the reserved fencing tokens; others may have drawn since.
        if mutant!(LapsedFencesKept => false, else self.until.remaining_at(now).is_zero()) {
            self.fences.forget_up_to(0);
        }
        let in_store_until = self.in_store_until();
        self.until = self.until.max_at(until, now);
        self.upkeep.asked_longer = in_store_until.later_than(self.until, now);
        true
    }

    /// Notes that others wait. Returns whether the keeper has to look when that is over.
    #[must_use]
    pub(super) fn note_contention(&mut self, env: &dyn Env) -> bool {
        let now = env.now();
        let is_known = self.is_contended(now);
        self.contention.get_or_insert_with(|| Contention::since(now).into()).heard = now;
        !is_known && self.contention_ends_in(now).is_some()
    }

    pub(crate) fn is_contended(&self, now: Moment) -> bool {
        mutant!(WaiterNeverGone => return self.contention.is_some());
        self.contention.is_some() && (self.share != Some(Share::READ) || self.contention_ends_in(now).is_some())
    }

    /// Rule S5: how long until the waiters that readers have heard of count as gone, unless they are heard of again. Any other lease ends
    /// with its hold, or soon after, and what it knows ends with it.
    pub(super) fn contention_ends_in(&self, now: Moment) -> Option<Duration> {
        let contention = self.contention.as_ref().filter(|_| self.share == Some(Share::READ))?;
        let left = WAITERS_KNOWN_FOR.saturating_sub(now.since(contention.heard));
        (!left.is_zero()).then_some(left)
    }

    /// Counts a hand-over. `false` if it is another process's turn (rule L4: a streak of hand-overs is bounded).
    pub(crate) fn try_hand_over(&mut self, now: Moment) -> bool {
        mutant!(StreakWithoutBound => return true);
        if self.share == Some(Share::READ) {
            // Rule S5: readers that arrive after a writer wait for it.
            return !self.is_contended(now);
        }
        let Some(contention) = &mut self.contention else {
            return true;
        };
        contention.hand_overs += 1;
        contention.hand_overs <= STREAK_HAND_OVERS && now.since(contention.since) < STREAK_TIME
    }

    pub(crate) fn has_ended(&self, now: Moment) -> bool {
        mutant!(LateHandOver => return false);
        self.hold.as_ref().is_none_or(|hold| self.until.has_passed_at(now) || hold.left(now).is_zero())
    }

    /// Notes that `renewal` is about to be sent. It may take effect even if its answer is lost.
    pub(crate) fn note_renewal_sent(&mut self, renewal: &Renewal, now: Moment) {
        let asked = Deadline::new(now, renewal.lease + renewal.grace);
        self.upkeep.asked_longer = self.upkeep.asked_longer.max(asked.later_than(self.until, now));
    }

    /// Until when the store may keep the lease, which may be later than it has confirmed.
    fn in_store_until(&self) -> Deadline {
        mutant!(UnansweredRenewalForgotten => return self.until);
        self.until.later_by(self.upkeep.asked_longer)
    }

    pub(super) fn lingers(&self) -> bool {
        self.linger.as_ref().is_some_and(|linger| linger.now.is_some())
    }

    /// How much longer the lease lingers. Zero if it does not.
    pub(super) fn lingers_for(&self, now: Moment) -> Duration {
        let until = self.linger.as_ref().and_then(|linger| linger.now);
        until.map_or(Duration::ZERO, |until| until.remaining_at(now))
    }

    /// How long until the lease has to be lengthened. `None` while no hold has used it again, or a renewal is in flight.
    pub(super) fn lengthen_due_in(&self, now: Moment) -> Option<Duration> {
        let is_due = !self.upkeep.renewing && self.linger.as_ref().is_some_and(|linger| linger.is_reused);
        is_due.then(|| self.until.remaining_at(now).saturating_sub(lengthened_at(self.claim)))
    }

    pub(crate) fn release(&self, env: &dyn Env) -> Release {
        Release {
            key: Arc::clone(env.key()),
            token: self.token.clone(),
            share: self.share,
            claim: self.claim,
            unused_fences: self.fences.unused(),
            contended: self.contention.is_some(),
            beside_others: false,
            queued: self.queued,
            // Rule 1: a release is repeated until 2.5 s after the last instant at which the store can have the lease.
            repeat_until: self.in_store_until().later_by(CLAIM),
            kept_until: self.kept_until(env),
            is_delay: false,
            or_ticket: None,
        }
    }
}

impl Contention {
    fn since(now: Moment) -> Self {
        Self { since: now, heard: now, hand_overs: 0 }
    }
}

#[cfg(test)]
mod tests;
