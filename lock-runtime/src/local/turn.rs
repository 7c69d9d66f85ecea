//! [`Turn`]: the right to act for one key in this process, and what its task does next.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::core::Core;
use super::family::SharedLeases;
use super::lease::{Fences, Lease};
use super::pending_ask::PendingAsk;
use super::resolved_request::ResolvedRequest;
use super::slot::{PassedBy, Slot, State};
use crate::clock::Moment;
use crate::store::{Answer, Ask, Release, Renewal, Renewed, Store};
use crate::timing::CLAIM;
use crate::token::Token;

/// A lease reserves at most this many fencing tokens, so that they never run far ahead of the clock.
const MOST_FENCES: u32 = 64;

/// The turn in a slot. Dropping it passes the turn on, and releases or withdraws what no task needs any more.
#[derive(Debug)]
pub(crate) struct Turn {
    slot: Arc<Slot>,
    id: u64,
    is_armed: bool,
}

/// The next step of the task with the turn.
pub(super) enum Step {
    /// The lease is good: start the hold.
    Hold,
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
    /// The time is up.
    GiveUp,
}

impl Step {
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Wait(pause) => Some(*pause),
            _ => None,
        }
    }

    /// Whether nothing goes on without the store.
    pub(super) fn needs_store(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Ask(_) | Self::Confirm(_) | Self::Draw(..) | Self::Wait(_))
    }

    /// Whether the task waits for others after this step.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Ask(Ask { wait: true, .. }))
    }
}

impl Turn {
    pub(crate) fn new(slot: &Arc<Slot>, id: u64) -> Self {
        Self { slot: Arc::clone(slot), id, is_armed: true }
    }

    /// Drops the turn without passing it on.
    pub(super) fn defuse(mut self) {
        self.is_armed = false;
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.slot.core
    }

    /// Decides on the next step, and notes it before it is done. So a turn that is dropped at any point knows what to
    /// withdraw.
    pub(super) fn step(&self, request: &ResolvedRequest, attempt: &Attempt, now: Moment) -> Step {
        let state = &mut *self.slot.state.lock();
        if !state.may_act(self.id) {
            return if attempt.is_over(now) { Step::GiveUp } else { Step::Rejoin };
        }
        state.offers.take_up(self.id, now);
        state.start_granted_lease(request, &self.slot, now);
        if let Some(crowded) = state.lease.take_if(|lease| !self.slot.has_room_on(lease)) {
            return Step::Withdraw(crowded.release(&request.key));
        }
        if state.lease.is_some() {
            self.step_with_lease(state, request, attempt, now)
        } else {
            self.step_without_lease(state, request, attempt, now)
        }
    }

    /// With a lease: start the hold, or first make sure that the lease is good enough for it.
    fn step_with_lease(&self, state: &mut State, request: &ResolvedRequest, attempt: &Attempt, now: Moment) -> Step {
        let Some(lease) = &mut state.lease else { return Step::GiveUp };
        let token = lease.token.clone();
        // While the keeper has no connection it could not confirm what a push tells of (rule 22: a push is a hint).
        let is_doubtful = lease.hinted.is_some() && self.core().schedule().is_cut_off(&request.key);
        if is_doubtful || !lease.is_good_for(request, now) {
            let renewal = self.slot.renewal(token, lease_before(request));
            lease.note_renewal_sent(&renewal, now);
            return self.act(state, attempt, now).unwrap_or(Step::Confirm(renewal));
        }
        if request.fenced && lease.fences.is_empty() {
            let fences = state.fences_for(request);
            return self.act(state, attempt, now).unwrap_or(Step::Draw(token, fences));
        }
        if attempt.is_over(now) { Step::GiveUp } else { Step::Hold }
    }

    /// Without a lease: ask the store, or wait for what was asked.
    fn step_without_lease(&self, state: &mut State, request: &ResolvedRequest, attempt: &Attempt, now: Moment) -> Step {
        mutant!(RetryUnderNewToken => if attempt.has_failed() {
            state.pending = None;
        });
        let fences = state.fences_for(request);
        let new_token = |may_linger| self.core().next_token(may_linger, self.slot.share);
        let new = || Box::new(PendingAsk::new(new_token(request.may_linger()), self.slot.share, claim_of(request)));
        let pending = state.pending.get_or_insert_with(new);
        if pending.must_yield() || self.is_given_up_try(pending) {
            let withdrawal = pending.withdrawal(&request.key);
            pending.restart(new_token(pending.token.may_linger()));
            return Step::Withdraw(withdrawal);
        }
        if let Some(step) = attempt.pause(now, false) {
            if let Step::Wait(pause) = step {
                state.offers.act_until(now, Some(pause), Duration::ZERO);
                state.track(&self.slot);
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
        // The plain claim can't draw fencing tokens, and is for the lock alone.
        let store = self.core().store();
        let can_claim = pending.share.is_none() && (fences == 0 || !store.draws_with_grants());
        // Rule L4: the lock was yielded, and who waits for it goes first.
        let queues = std::mem::take(&mut state.has_yielded) && !request.is_try() && store.claims_overtake_waiters();
        let is_claim = pending.is_new() && can_claim && !queues;
        let cause = pending.note_sent(now, fences, is_claim, !request.is_try());
        let ask = Ask {
            key: Arc::clone(&request.key),
            token: pending.token.clone(),
            share: pending.share,
            claim: pending.claim,
            wait: !request.is_try(),
            fences,
            give_up: attempt.by(),
            cause,
        };
        state.offers.awaits_since = Some(now);
        // The keeper checks whether the answer is read, and later whether the hold lasts.
        state.track(&self.slot);
        if is_claim { Step::Claim(ask) } else { Step::Ask(ask) }
    }

    /// Whether a try stands that nobody waits for any more: its task is gone, or the try was not answered in time. Some servers of a
    /// quorum may have granted the try, and the waiters in the first server's queue do not hear of that. So the try is withdrawn.
    fn is_given_up_try(&self, pending: &PendingAsk) -> bool {
        mutant!(GivenUpTryStands => return false);
        pending.is_unanswered_try() && self.core().store().withdraws_refused_tries()
    }

    /// What forbids a command about the lease now. When nothing does, the task must read the answer in time.
    fn act(&self, state: &mut State, attempt: &Attempt, now: Moment) -> Option<Step> {
        let step = attempt.pause(now, true);
        let pause = step.as_ref().and_then(Step::pause);
        state.offers.act_until(now, pause, self.distance());
        state.track(&self.slot);
        step
    }

    /// How long an answer is on its way.
    fn distance(&self) -> Duration {
        mutant!(StepsFromAfarAreLate => return Duration::ZERO);
        let store = self.core().store();
        store.round_trip() * store.round_trips_of_a_verb()
    }

    /// Takes in the answer to an ask.
    pub(super) fn on_answer(&self, ask: &Ask, answer: Answer) {
        let granted = matches!(answer, Answer::Granted(_));
        // When this task was passed over, the other tasks know better by now who has the lock.
        if (granted || self.slot.state.lock().has_turn(self.id)) && !self.slot.on_answer(ask, answer) {
            // The ask was withdrawn meanwhile, perhaps before the server executed it.
            self.core().withdraw(ask.withdrawal());
        }
    }

    /// Takes in the answer to a plain claim.
    pub(super) fn on_claim_answer(&self, ask: &Ask, answer: Answer) {
        self.on_answer(&Ask { wait: false, ..ask.clone() }, answer);
    }

    /// Takes in the answer to a confirmation.
    pub(super) fn on_confirm_answer(&self, outcome: Renewed) {
        let mut state = self.slot.state.lock();
        if !state.acts(self.id) {
            return;
        }
        match outcome {
            Renewed::Until(until) => {
                if let Some(lease) = &mut state.lease {
                    lease.fresh = lease.confirm(until);
                }
            }
            // The store no longer has the lease, so there is nothing to release. The next step asks under a new token
            // (rule L3: a token is never used again).
            Renewed::NotOwned | Renewed::Partial => state.lease = None,
        }
        drop(state);
        self.slot.wake();
    }

    /// Takes in the answer to a draw.
    pub(super) fn on_draw_answer(&self, first: Option<u64>, count: u32) {
        let mut state = self.slot.state.lock();
        if !state.acts(self.id) {
            return;
        }
        match first {
            Some(first) => {
                if let Some(lease) = &mut state.lease {
                    lease.fences = Fences::new(first, count);
                    // Only an owner draws.
                    lease.hinted = None;
                }
            }
            None => state.lease = None,
        }
        drop(state);
        // Wakes single tries, which wait for the outcome of this turn.
        self.slot.wake();
    }

    /// Notes that the lease ends with a release that carries a new ask along.
    ///
    /// The next hold may want its lease to linger as that of `ended` might have.
    pub(super) fn note_yield(&self, ended: &Token, claim: Duration, now: Moment) -> Token {
        let mut state = self.slot.state.lock();
        let token = self.slot.core.next_token(ended.may_linger(), self.slot.share);
        state.offers.awaits_since = Some(now);
        state.offers.is_releasing = true;
        state.track(&self.slot);
        state.pending = Some(Box::new(PendingAsk::sent_along(token.clone(), self.slot.share, claim, now)));
        token
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

impl State {
    /// Makes a lease from what the store has granted.
    fn start_granted_lease(&mut self, request: &ResolvedRequest, slot: &Slot, now: Moment) {
        let is_hinted = self.pending.as_ref().is_some_and(|pending| pending.is_hinted());
        if let Some(grant) = self.pending.as_mut().and_then(|pending| pending.take_grant())
            && let Some(pending) = self.pending.take()
        {
            let mut lease = Lease::new(&pending, &grant);
            lease.hinted = is_hinted.then_some(now);
            // The lease may have been asked for by a task that wanted less and gave up. Then it is good for this task
            // only once it is confirmed.
            lease.fresh &= lease.claim >= request.lease().min(CLAIM);
            lease.counted = slot.leases.as_ref().map(SharedLeases::count);
            self.lease = Some(lease);
        }
    }

    /// How many fencing tokens to draw, for this task and for the tasks that wait.
    fn fences_for(&self, request: &ResolvedRequest) -> u32 {
        match (request.fenced, request.share) {
            (false, _) => 0,
            // The next holds come without a command.
            (true, None) if request.may_linger() => MOST_FENCES,
            (true, None) => (1 + self.fenced_waiters()).min(MOST_FENCES),
            // Rule S6: other owners draw meanwhile, and what was reserved would be smaller than their tokens.
            (true, Some(_)) => 1,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        self.slot.pass_on(self.id, PassedBy::Task);
    }
}
