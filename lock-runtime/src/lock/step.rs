//! What the task with the turn does next.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::attempt::Attempt;
use super::lease::{Fences, Lease};
use super::pending_ask::PendingAsk;
use super::request::ResolvedRequest;
use super::terms::Terms;
use super::{Effects, Env, Lock, Standing};
use crate::clock::Moment;
use crate::observe::{Path, metrics};
use crate::protocol::{Ask, Release, Renewal, Renewed, StoreError};
use crate::share::SharedLeases;
use crate::timing::CLAIM;
use crate::token::Token;

/// A lease reserves at most this many fencing tokens, so that they never run far ahead of the clock.
const MOST_FENCES: u32 = 64;

/// The next step of the task with the turn.
#[derive(Debug)]
pub(crate) enum Step {
    /// The lease is good, and the hold has started.
    Hold(Started),
    /// Take the lock by the plain claim.
    Claim(Ask),
    /// Ask by script, and join the queue.
    Ask(Ask),
    /// Confirm the lease before the hold starts.
    Confirm(Renewal),
    /// Draw fencing tokens.
    Draw(Token, u32),
    /// Withdraw an ask, or release a lease that no hold may start on.
    Withdraw(Release),
    /// Wait for a change, at most for this time.
    Wait(Duration),
    /// Wait again at the old place, because the turn was passed over (rule L7).
    Rejoin,
    /// The store refuses what the task waits for.
    Fail(StoreError),
    /// A newer request replaces the holder (rule 25).
    Replaced,
    /// The time is up.
    GiveUp,
}

impl Step {
    /// What comes in place of a command: the time is up, or a back-off is running. A task that `owns` the lease may overrun any timeout by
    /// one answer.
    fn instead_of_asking(attempt: &Attempt, now: Moment, owns: bool) -> Option<Self> {
        if attempt.is_time_up(now, owns) { Some(Self::GiveUp) } else { attempt.back_off(now).map(Self::Wait) }
    }

    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Wait(pause) => Some(*pause),
            _ => None,
        }
    }

    /// Whether nothing goes on without the store.
    pub(crate) fn needs_store(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Ask(_) | Self::Confirm(_) | Self::Draw(..) | Self::Wait(_))
    }

    /// Whether the task may wait for others in this step, and so counts as one who waits. One command is no such wait.
    pub(crate) fn waits_for_others(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Ask(Ask { wait: true, .. }))
    }
}

/// A hold that has started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) token: Token,
    pub(crate) fence: OnceLock<u64>,
    /// How the task came by it.
    pub(crate) path: Path,
    /// The last owner, when its lease had ended without a release.
    pub(crate) dead_owner: Option<Box<Token>>,
    /// Counts the part of the first of several readers.
    pub(crate) holding: Option<metrics::Holding>,
}

impl Lock {
    /// Decides on the next step of the task `id`, and notes it before it is done. So a turn that is dropped at any point knows what to
    /// withdraw.
    pub(crate) fn step(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Step {
        if self.is_replaced(id, request) {
            return Step::Replaced;
        }
        if !self.may_act(id) {
            return if attempt.is_over(now) { Step::GiveUp } else { Step::Rejoin };
        }
        self.offers.take_up(id, now);
        self.start_granted_lease(request, env, now);
        if let Some(crowded) = self.standing.take_lease_if(|lease| !lease.has_room()) {
            return Step::Withdraw(crowded.release(env));
        }
        match self.standing {
            Standing::Leased(_) => self.step_with_lease(id, request, attempt, env, now, out),
            Standing::Asking(_) | Standing::Nothing => self.step_without_lease(request, attempt, env, now),
        }
    }

    /// With a lease: the hold starts, unless the lease is not good enough for it yet.
    fn step_with_lease(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Step {
        let fences = self.fences_for(request);
        let Some(lease) = self.lease_mut() else { return Step::GiveUp };
        // While the keeper has no connection it could not confirm what a push tells of (rule 22: a push is a hint).
        let is_doubtful = lease.hinted.is_some() && env.keepers_connection().is_cut_off;
        if is_doubtful || !lease.is_good_for(request, now) {
            let renewal = lease.renewal(lease_before(request), env);
            lease.note_renewal_sent(&renewal, now);
            return self.act(attempt, now).unwrap_or(Step::Confirm(renewal));
        }
        if request.fenced && lease.fences.is_empty() {
            let token = lease.token.clone();
            return self.act(attempt, now).unwrap_or(Step::Draw(token, fences));
        }
        if attempt.is_over(now) {
            return Step::GiveUp;
        }
        self.start(id, request, now, out).map_or(Step::GiveUp, Step::Hold)
    }

    /// Without a lease: ask the store, or wait for what was asked.
    fn step_without_lease(&mut self, request: &ResolvedRequest, attempt: &Attempt, env: &dyn Env, now: Moment) -> Step {
        mutant!(RetryUnderNewToken => if attempt.has_failed() {
            self.standing = Standing::Nothing;
        });
        let fences = self.fences_for(request);
        let pause = self.pause_between_polls(attempt, now);
        if matches!(self.standing, Standing::Nothing) {
            let pending = PendingAsk::new(env.next_token(request.may_linger()), env.share(), claim_of(request));
            self.standing = Standing::Asking(Box::new(pending));
        }
        let Some(pending) = self.standing.pending_mut() else { return Step::GiveUp };
        if pending.is_replaced() {
            if request.replaces() && attempt.replacing().is_some() {
                return Step::Replaced;
            }
            // It was that of a task that is gone.
            pending.restart(env.next_token(pending.token.may_linger()));
        }
        let known = attempt.replacing();
        // Under the token of another ask this task would keep the place of that ask.
        let is_own = |token: &Token| known.is_some_and(|known| known.name == *token);
        let is_of_another = request.replaces()
            && pending.may_stand()
            && !is_own(&pending.token)
            && !pending.replaces.as_ref().is_some_and(is_own);
        if pending.must_restart() || is_of_another {
            let withdrawal = pending.withdrawal(env);
            pending.restart(env.next_token(pending.token.may_linger()));
            return Step::Withdraw(withdrawal);
        }
        if let Some(denial) = pending.take_denial() {
            return Step::Fail(denial);
        }
        pending.replaces =
            request.replaces().then(|| known.map_or_else(|| pending.token.clone(), |known| known.name.clone()));
        if let Some(step) = Step::instead_of_asking(attempt, now, false).or(pause.map(Step::Wait)) {
            if let Step::Wait(pause) = step {
                self.offers.act(now, Some(pause));
                self.track();
            }
            return step;
        }
        if pending.only_waits()
            && let Some(pause) = pending.pause_before_ask(now)
            // A single try asks once, even when it took up a turn that another task had left.
            && let left = attempt.give_up().remaining_at(now)
            && !left.is_zero()
        {
            return Step::Wait(pause.min(left));
        }
        // The plain claim can't draw fencing tokens, is for the lock alone, and does not tell those who wait of a newer request.
        let is_claim = pending.is_new() && pending.share.is_none() && fences == 0 && !request.replaces();
        pending.note_sent(now, fences, !request.is_try());
        // Of several keys, a try is the beginning of a longer wait: its claim need not tell whose the lock is.
        let waits = !request.is_try() || (is_claim && request.whole().is_some_and(|whole| !whole.is_try()));
        let ask = Ask {
            key: Arc::clone(&request.key),
            token: pending.token.clone(),
            share: pending.share,
            claim: pending.claim,
            wait: waits,
            replaces: pending.replacing(known.is_some_and(|known| known.is_known)),
            fences,
            give_up: attempt.by(),
            repeats: false,
        };
        self.offers.awaits_since = Some(now);
        // The keeper checks whether the answer is read, and later whether the hold lasts.
        self.track();
        if is_claim { Step::Claim(ask) } else { Step::Ask(ask) }
    }

    /// What forbids a command about the lease now. When nothing does, the task must read the answer in time.
    fn act(&mut self, attempt: &Attempt, now: Moment) -> Option<Step> {
        let step = Step::instead_of_asking(attempt, now, true);
        let pause = step.as_ref().and_then(Step::pause);
        self.offers.act(now, pause);
        self.track();
        step
    }

    /// Takes in the answer to the confirmation that the task `id` asked for. Returns the release of a lease that was taken by force.
    pub(crate) fn on_confirm_answer(
        &mut self,
        id: u64,
        outcome: Renewed,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Option<Release> {
        if !self.acts(id) {
            return None;
        }
        let mut release = None;
        match outcome {
            Renewed::Until(until) => {
                if let Some(lease) = self.lease_mut() {
                    lease.fresh = lease.confirm(until, env.now());
                }
            }
            // The next step asks under a new token (rule L3: a token is never used again). What is left of the lease is in the way of
            // others: the mark of a force (rule 21: no body began), or a part of the store that still has it.
            Renewed::NotOwned | Renewed::Forced => {
                release = self.standing.take_lease_if(|_| true).map(|lease| lease.release(env));
            }
        }
        out.wakes = true;
        release
    }

    /// Takes in the answer to the draw that the task `id` asked for. Returns the release of a lease that is gone: it may have been taken
    /// by force.
    pub(crate) fn on_draw_answer(
        &mut self,
        id: u64,
        first: Option<u64>,
        count: u32,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Option<Release> {
        if !self.acts(id) {
            return None;
        }
        let mut release = None;
        match first {
            Some(first) => {
                if let Some(lease) = self.lease_mut() {
                    lease.fences = Fences::new(first, count);
                    // Only an owner draws.
                    lease.hinted = None;
                }
            }
            None => release = self.standing.take_lease_if(|_| true).map(|lease| lease.release(env)),
        }
        out.wakes = true;
        release
    }

    /// Makes a lease from what the store has granted.
    fn start_granted_lease(&mut self, request: &ResolvedRequest, env: &dyn Env, now: Moment) {
        let Some(pending) = self.standing.pending_mut() else { return };
        let is_hinted = pending.is_hinted();
        let Some(grant) = pending.take_grant(env) else { return };
        self.standing = Standing::Leased(Lease::new(pending, &grant, env));
        let Some(lease) = self.lease_mut() else { return };
        lease.hinted = is_hinted.then(|| Box::new(now));
        // The lease may have been asked for by a task that wanted less and gave up. Then it is good for this task
        // only once it is confirmed.
        lease.fresh &= lease.claim >= request.lease().min(CLAIM);
        lease.counted = env.leases().map(SharedLeases::count);
    }

    /// How many fencing tokens to draw, for this task and for the tasks that wait.
    fn fences_for(&self, request: &ResolvedRequest) -> u32 {
        match (request.fenced, request.share) {
            (false, _) => 0,
            // The next holds come without a command.
            (true, None) if request.may_linger() => MOST_FENCES,
            (true, None) => (1 + self.waiters.fences_wanted()).min(MOST_FENCES),
            // Rule S6: other owners draw meanwhile, and what was reserved would be smaller than their tokens.
            (true, Some(_)) => 1,
        }
    }

    /// Starts the hold of the task `id`. `None` when the lease is gone, is not good enough (rule L1), would be one permit too many
    /// (rule S8), or has no fencing token left.
    pub(crate) fn start(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        now: Moment,
        out: &mut Effects,
    ) -> Option<Started> {
        if !self.may_act(id) || self.is_replaced(id, request) {
            return None;
        }
        let lease = self.lease_mut().filter(|lease| lease.is_good_for(request, now) && lease.has_room())?;
        let fence = OnceLock::new();
        if request.fenced {
            // Rule L2: every hold has a fencing token of its own.
            let _ = fence.set(lease.fences.take()?);
        }
        let lease = self.begin(id, request, now)?;
        lease.forget_shared_fences();
        let (token, dead_owner) = (lease.token.clone(), lease.dead_owner.take());
        let path = lease.hold.as_ref().map_or(Path::HandOver, |hold| hold.path);
        let readers = lease.hold.as_mut().filter(|hold| hold.readers.is_some());
        let holding = readers.and_then(|hold| hold.holding.take());
        if lease.share.is_some() {
            self.call_readers(now, out);
        }
        self.offers.take_up(id, now);
        self.track();
        Some(Started { token, fence, path, dead_owner, holding })
    }

    /// Begins the time of the hold `id`, which was one of several keys until `now`. Its `terms` are those from which the hold's user
    /// reads why it was lost.
    pub(crate) fn begin_time(&mut self, id: u64, request: &ResolvedRequest, terms: Option<&Arc<Terms>>, now: Moment) {
        let Some(lease) = self.lease_of_mut(id) else { return };
        let Some(mut hold) = lease.hold.take() else { return };
        hold.begin(request, now);
        if hold.terms.is_some() {
            hold.terms = terms.cloned();
        }
        hold.confirmed = lease.is_whole_for(&hold, now).then_some(now);
        lease.hold = Some(hold);
        // The keeper may have known it as a hold that needs nothing for long.
        self.track();
    }

    /// Begins the hold `id` on the lease. `None` without a lease.
    pub(crate) fn begin(&mut self, id: u64, request: &ResolvedRequest, now: Moment) -> Option<&mut Lease> {
        let lease = self.standing.lease_mut()?;
        let path = std::mem::replace(&mut lease.path, Path::HandOver);
        self.counts.count(path);
        let holding = lease.holds.begin(request.prefix(), path);
        lease.carry(id, path, holding, request, now);
        Some(lease)
    }
}

/// The first lease that is asked for (rule 11: a grant starts with a claim, which is short).
fn claim_of(request: &ResolvedRequest) -> Duration {
    mutant!(WholeLeaseClaimed => return request.expire);
    request.lease().min(CLAIM)
}

/// The lease that is confirmed before the hold starts. If the process crashes before it reads the answer, a waiter has crashed, and
/// that may cost others a claim and no more (rule 11). With `at_least` others are to be kept out from the start.
fn lease_before(request: &ResolvedRequest) -> Duration {
    mutant!(ConfirmedBeforeHold => return request.lease());
    if request.at_least().is_zero() { claim_of(request) } else { request.lease() }
}
