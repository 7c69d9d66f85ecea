//! What a task does next that is polled.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::attempt::Attempt;
use super::lease::{Fences, Lease};
use super::pending_ask::PendingAsk;
use super::queue::has_room;
use super::readers::Joined;
use super::request::ResolvedRequest;
use super::terms::Terms;
use super::wait_queue::Waiter;
use super::{Acting, Effects, Env, Lane, Lock, Standing};
use crate::clock::Moment;
use crate::keep_alive::KeepAlive;
use crate::observe::{Path, metrics};
use crate::protocol::{Ask, Release, Renewal, Renewed, StoreError};
use crate::share::{Share, SharedLeases};
use crate::timing::{CLAIM, FREE_PATIENCE, TICK};
use crate::token::Token;

/// A lease reserves at most this many fencing tokens, so that they never run far ahead of the clock.
const MOST_FENCES: u32 = 64;

/// What a task does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The hold has started.
    Hold(Started),
    /// The task has the hold of other readers together with them.
    Joined(Joined),
    /// Take the lock by the plain claim.
    Claim(Ask),
    /// Ask by script, and join the queue.
    Ask(Ask),
    /// Confirm the lease before the hold starts.
    Confirm(Renewal),
    /// Draw fencing tokens.
    Draw(Token, u32),
    /// Withdraw an ask, or release a lease that no hold may start on, and look again.
    Withdraw(Release),
    /// Wait until the task is woken, at most for this time.
    Wait(Duration),
    /// The store refuses what the task waits for.
    Fail(StoreError),
    /// A newer request replaces the holder (rule 25).
    Replaced,
    /// The time is up.
    GiveUp,
}

impl Step {
    /// What comes in place of a command: the time is up, or the task backs off. A task that `owns` the lease may overrun any timeout by
    /// one answer.
    fn instead_of_asking(attempt: &Attempt, now: Moment, owns: bool) -> Option<Self> {
        if attempt.is_time_up(now, owns) { Some(Self::GiveUp) } else { attempt.back_off(now).map(Self::Wait) }
    }

    /// Whether nothing goes on without the store.
    pub(crate) fn needs_store(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Ask(_) | Self::Confirm(_) | Self::Draw(..))
    }

    /// Whether the task may wait for others in this step, and so counts as one who waits. One command is no such wait.
    pub(crate) fn waits_for_others(&self) -> bool {
        matches!(self, Self::Ask(Ask { wait: true, .. }))
    }
}

/// A hold that has started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) id: u64,
    /// The reader's number in a hold of readers; zero for the hold of one task.
    pub(crate) member: u64,
    pub(crate) token: Token,
    pub(crate) fence: OnceLock<u64>,
    /// How the task came by it.
    pub(crate) path: Path,
    /// The last owner, when its lease had ended without a release.
    pub(crate) dead_owner: Option<Box<Token>>,
    /// Counts the part of the first of several readers.
    pub(crate) holding: Option<metrics::Holding>,
    /// While its acquire is not complete.
    pub(crate) alive: Option<Arc<KeepAlive>>,
}

impl Lock {
    /// Decides what the task `id` does next, and notes it before it is done. A task that has to wait waits from now on in the queue, and
    /// is woken after [`Lock::register`].
    pub(crate) fn poll(
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
        self.waiters.on_poll(id);
        if request.is_single_try() && attempt.is_refused() {
            // Its one answer decides, whatever came meanwhile.
            return Step::GiveUp;
        }
        let is_over = attempt.is_over(now);
        if !is_over && let Some(joined) = self.join(id, request, now, out) {
            return Step::Joined(joined);
        }
        let step = match self.lane_for(id, request, env, now) {
            _ if is_over => Step::GiveUp,
            Some(at) => self.step(at, id, request, attempt, env, now, out),
            None if request.is_try() => Step::GiveUp,
            None => Step::Wait(attempt.give_up().remaining_at(now)),
        };
        match step {
            Step::Wait(Duration::ZERO) => Step::GiveUp,
            step @ (Step::Wait(_) | Step::Withdraw(_)) => {
                if !self.waiters.has(id) {
                    self.waiters.add(id, Waiter::new(request));
                }
                step
            }
            step => step,
        }
    }

    /// From now on `waker` wakes the task `id`, which waits.
    pub(crate) fn register(&mut self, id: u64, waker: std::task::Waker, out: &mut Effects) {
        let unneeded = self.waiters.register(id, waker);
        out.drop_waker(unneeded);
    }

    /// The lane for which the task `id` may act: what lies free, an ask without a task, or a new one.
    fn lane_for(&mut self, id: u64, request: &ResolvedRequest, env: &dyn Env, now: Moment) -> Option<usize> {
        let own = self.lanes.iter_mut().position(|lane| lane.is_acting(id));
        if let Some(lane) = own.and_then(|at| self.lanes.get_mut(at)) {
            lane.acting = None;
            return own;
        }
        let has_precedence = self.waiters.has_precedence(id);
        if has_precedence && let Some(at) = self.lanes.iter().position(Lane::is_free) {
            return Some(at);
        }
        let wants_task = |lane: &Lane| lane.is_idle_ask() && lane.wants_task(now);
        if has_precedence && let Some(at) = self.lanes.iter().position(wants_task) {
            return Some(at);
        }
        let idle = self.lanes.iter().filter(|lane| lane.is_idle_ask()).count();
        let waiting = self.without_ask() + usize::from(!self.waiters.has(id));
        let may_ask = idle < waiting && (has_precedence || !self.lanes.is_empty());
        if !may_ask || !has_room(env, self.lanes.len()) {
            // The first task knows when the ask has to be repeated.
            return self.lanes.iter().position(Lane::is_idle_ask).filter(|_| has_precedence);
        }
        let ask = PendingAsk::new(env.next_token(request.may_linger()), env.share(), claim_of(request));
        self.lanes.push(Lane::new(Standing::Asking(Box::new(ask))));
        Some(self.lanes.len() - 1)
    }

    #[expect(clippy::too_many_arguments, reason = "the lane, and what `poll` was told")]
    fn step(
        &mut self,
        at: usize,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Step {
        let Some(lane) = self.lanes.get_mut(at) else { return Step::GiveUp };
        lane.start_granted_lease(env, now);
        if lane.lease().is_some_and(|lease| !lease.has_room()) {
            return self.remove(at).into_release(env).map_or(Step::GiveUp, Step::Withdraw);
        }
        let step = match lane.standing {
            Standing::Leased(_) => self.step_with_lease(at, id, request, attempt, env, now, out),
            Standing::Asking(_) => self.step_without_lease(at, id, request, attempt, env, now),
        };
        match &step {
            // What was found out stays until the task has left.
            Step::Claim(_) | Step::Ask(_) | Step::Confirm(_) | Step::Draw(..) | Step::GiveUp => {
                if let Some(lane) = self.lanes.get_mut(at) {
                    lane.acting = Some(Acting { id, since: now, releases: false });
                }
                // The keeper checks whether the answer is read, and later whether the hold lasts.
                self.is_tracked = true;
            }
            Step::Wait(pause) if !self.lanes.get(at).is_some_and(Lane::only_waits) => self.pause(*pause + TICK, now),
            _ => {}
        }
        step
    }

    /// With a lease: the hold starts, unless the lease is not good enough for it yet.
    #[expect(clippy::too_many_arguments, reason = "the lane, and what `poll` was told")]
    fn step_with_lease(
        &mut self,
        at: usize,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Step {
        let fences = self.fences_for(id, request);
        let Some(lease) = self.lanes.get_mut(at).and_then(Lane::lease_mut) else { return Step::GiveUp };
        // While the keeper has no connection it could not confirm what a push tells of (rule 22: a push is a hint).
        let is_doubtful = lease.hinted.is_some() && env.keepers_connection().is_cut_off;
        if is_doubtful || !lease.is_good_for(request, now) {
            if let Some(step) = Step::instead_of_asking(attempt, now, true) {
                return step;
            }
            let renewal = lease.renewal(lease_before(request), env);
            lease.note_renewal_sent(&renewal, now);
            return Step::Confirm(renewal);
        }
        if request.fenced && lease.fences.is_empty() {
            let token = lease.token.clone();
            return Step::instead_of_asking(attempt, now, true).unwrap_or(Step::Draw(token, fences));
        }
        let fence = OnceLock::new();
        if request.fenced {
            // Rule L2: every hold has a fencing token of its own.
            let Some(token) = lease.fences.take() else { return Step::GiveUp };
            let _ = fence.set(token);
        }
        lease.reuse_lingering();
        self.start(at, id, fence, request, now, out).map_or(Step::GiveUp, Step::Hold)
    }

    /// Without a lease: ask the store, or wait for what was asked.
    fn step_without_lease(
        &mut self,
        at: usize,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
    ) -> Step {
        let fences = self.fences_for(id, request);
        // A store without a queue is polled. Elsewhere a task only backs off.
        let pause = if env.kind().queues { None } else { self.pause_between_polls(attempt, now) };
        let Some(pending) = self.lanes.get_mut(at).and_then(Lane::pending_mut) else { return Step::GiveUp };
        mutant!(RetryUnderNewToken => if attempt.has_failed() {
            *pending = PendingAsk::new(env.next_token(false), env.share(), claim_of(request));
        });
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
            return step;
        }
        if pending.only_waits()
            && let Some(pause) = pending.pause_before_ask(now)
            // A single try asks once, even when it found the ask of another task.
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
        };
        if is_claim { Step::Claim(ask) } else { Step::Ask(ask) }
    }

    /// Takes in the answer to the confirmation of the lease of `token`, which was sent at `sent`.
    pub(crate) fn on_confirmed(
        &mut self,
        token: &Token,
        sent: Moment,
        outcome: Renewed,
        env: &dyn Env,
        out: &mut Effects,
    ) {
        let now = env.now();
        let Some(lease) = self.lease_under(token).filter(|lease| lease.hold.is_none()) else { return };
        match outcome {
            Renewed::Until(until) => {
                let is_confirmed = lease.confirm(until, now);
                lease.fresh = is_confirmed;
            }
            // The command that confirmed the lease was sent later.
            Renewed::NotOwned | Renewed::Forced if lease.is_confirmed_after(sent) => {}
            // The next step asks under a new token (rule L3: a token is never used again). What is left of the lease is in the way of
            // others: the mark of a force (rule 21: no body began), or a part of the store that still has it.
            Renewed::NotOwned | Renewed::Forced => self.release_gone(token, env, out),
        }
    }

    /// Takes in the answer to the draw for the lease of `token`, which the task `id` sent at `sent`.
    ///
    /// A task that does not act any more may have been overtaken by one that has drawn greater tokens (rule L2).
    pub(crate) fn on_drawn(
        &mut self,
        (id, token, sent): (u64, &Token, Moment),
        (first, count): (Option<u64>, u32),
        env: &dyn Env,
        out: &mut Effects,
    ) {
        let acts = self.lanes.iter().any(|lane| lane.is_acting(id));
        let Some(lease) = self.lease_under(token).filter(|lease| lease.hold.is_none()) else { return };
        let is_overtaken = |first| mutant!(OvertakenDrawCounts => false, else !acts && !lease.fences.are_below(first));
        match first {
            Some(first) if is_overtaken(first) => {}
            Some(first) => {
                lease.fences = Fences::new(first, count);
                // Only an owner draws.
                lease.hinted = None;
            }
            None if lease.is_confirmed_after(sent) => {}
            None => self.release_gone(token, env, out),
        }
    }

    /// The store does not know a lease any more that no hold uses.
    fn release_gone(&mut self, token: &Token, env: &dyn Env, out: &mut Effects) {
        let Some(lease) = self.take_lease(token, |lease| lease.hold.is_none()) else { return };
        mutant!(UnusedMarkLeft => return);
        out.releases.push(lease.release(env));
    }

    /// How many fencing tokens to draw, for this task and for the tasks that wait.
    fn fences_for(&self, id: u64, request: &ResolvedRequest) -> u32 {
        match (request.fenced, request.share) {
            (false, _) => 0,
            // The next holds come without a command.
            (true, None) if request.may_linger() => MOST_FENCES,
            (true, None) => (self.waiters.fences_wanted() + u32::from(!self.waiters.has(id))).clamp(1, MOST_FENCES),
            // Rule S6: other owners draw meanwhile, and what was reserved would be smaller than their tokens.
            (true, Some(_)) => 1,
        }
    }

    /// Starts the hold of the task `id` on the lease of the lane `at`.
    pub(super) fn start(
        &mut self,
        at: usize,
        id: u64,
        fence: OnceLock<u64>,
        request: &ResolvedRequest,
        now: Moment,
        out: &mut Effects,
    ) -> Option<Started> {
        let lane = self.lanes.get_mut(at)?;
        let is_late = lane.free_since.is_some_and(|since| now.since(since) > FREE_PATIENCE);
        (lane.free_since, lane.probed) = (None, None);
        let lease = lane.lease_mut()?;
        let path = std::mem::replace(&mut lease.path, Path::HandOver);
        let holding = lease.holds.begin(request.prefix(), path);
        lease.carry(id, path, holding, request, now);
        lease.forget_shared_fences();
        let (token, dead_owner) = (lease.token.clone(), lease.dead_owner.take());
        let mut started =
            Started { id, member: 0, token, fence, path, dead_owner, holding: None, alive: request.alive() };
        if let Some(hold) = lease.hold.as_mut().filter(|hold| hold.readers.is_some()) {
            (started.member, _) = hold.add_reader(request, false, now);
            started.holding = hold.holding.take();
        }
        self.counts.count(path);
        self.forget_waiter(id, out);
        // Where tasks are always polled late, the next lease has as much time.
        self.untaken = if is_late { self.untaken } else { 0 };
        (self.pauses, self.is_tracked) = (None, true);
        if request.share == Some(Share::READ) {
            self.wake_readers(now, out);
        }
        Some(started)
    }

    /// Begins the time of the hold `id`, which was one of several keys until `now`. Its `terms` are those from which the hold's user
    /// reads why it was lost. Returns `false` when the hold is lost.
    pub(crate) fn begin_time(
        &mut self,
        (id, member): (u64, u64),
        request: &ResolvedRequest,
        terms: Option<&Arc<Terms>>,
        now: Moment,
    ) -> bool {
        mutant!(LostWhileDrawn => return true);
        // The keeper may have known it as a hold that needs nothing for long.
        self.is_tracked = true;
        let Some(lease) = self.lease_of_mut(id).filter(|lease| !lease.has_ended(now)) else { return false };
        let Some(mut hold) = lease.hold.take() else { return false };
        let mut is_held = true;
        if member > 0 {
            is_held = hold.complete_reader(member, request, now);
        } else {
            hold.begin(request, now);
            if hold.terms.is_some() {
                hold.terms = terms.cloned();
            }
            hold.confirmed = lease.is_whole_for(&hold, now).then_some(now);
        }
        lease.hold = Some(hold);
        is_held
    }
}

impl Lane {
    /// Makes a lease from what the store has granted.
    fn start_granted_lease(&mut self, env: &dyn Env, now: Moment) {
        let Some(pending) = self.pending_mut() else { return };
        let is_hinted = pending.is_hinted();
        let Some(grant) = pending.take_grant(env) else { return };
        let mut lease = Lease::new(pending, &grant, env);
        lease.hinted = is_hinted.then(|| Box::new(now));
        lease.counted = env.leases().map(SharedLeases::count);
        self.standing = Standing::Leased(lease);
    }

    /// Whether there is nothing to do but to wait for the store.
    fn only_waits(&self) -> bool {
        self.pending().is_some_and(PendingAsk::only_waits)
    }

    /// Whether the ask has to be sent again.
    fn wants_task(&self, now: Moment) -> bool {
        self.pending().is_some_and(|pending| !pending.only_waits() || pending.pause_before_ask(now).is_none())
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
