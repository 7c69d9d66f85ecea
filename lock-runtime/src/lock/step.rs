//! What a polled task does next, and how its hold starts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::attempt::{Attempt, LastAnswer, Sent};
use super::hold::ActiveHold;
use super::lease::{Fences, Lease, Linger};
use super::pending_ask::{Granted, PendingAsk};
use super::queue::has_room;
use super::request::{ResolvedRequest, Terms};
use super::wait_queue::Waiter;
use super::{Acting, Effects, Env, Lane, Lock, Standing};
use crate::clock::Moment;
use crate::keep_alive::KeepAlive;
use crate::observe::Path;
use crate::protocol::{Ask, Grant, Release, Renewal, Renewed, StoreError};
use crate::share::Share;
use crate::timing::{CLAIM, FREE_PATIENCE, RENEWALS_PER_LEASE, TICK};
use crate::token::Token;

/// A lease reserves at most this many fencing tokens, so that they never run far ahead of the clock.
const MOST_FENCES: u32 = 64;

#[derive(Debug)]
pub(crate) enum Step {
    /// The hold has started, or the task shares the hold of other readers.
    Hold(Started),
    /// Take the lock by the plain claim.
    Claim(Ask),
    /// Ask by script, and join the queue.
    Ask(Ask),
    /// Confirm the lease before the hold starts.
    Confirm(Renewal),
    Draw(Token, u32),
    /// Withdraw an ask, or release a lease that no hold may start on, and poll again.
    Withdraw(Release),
    /// Wait to be woken, for at most this long.
    Wait(Duration),
    /// The store refuses what the task waits for.
    Fail(StoreError),
    /// A newer request replaces the holder (rule 25).
    Replaced,
    GiveUp,
}

impl Step {
    /// The step instead of a command, if the time is up or the task backs off. A task that `owns` the lease may overrun any timeout by one
    /// answer.
    fn instead_of_asking(attempt: &Attempt, now: Moment, owns: bool) -> Option<Self> {
        if attempt.is_time_up(now, owns) { Some(Self::GiveUp) } else { attempt.back_off(now).map(Self::Wait) }
    }
}

/// A hold that has started, or a reader's part in a hold that it joined.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) id: u64,
    /// The reader's number in a hold of readers; zero for the hold of one task.
    pub(crate) member: u64,
    pub(crate) token: Token,
    pub(crate) fence: OnceLock<u64>,
    pub(crate) path: Path,
    /// The last owner, if its lease ended without a release.
    pub(crate) dead_owner: Option<Box<Token>>,
    /// Set while the acquire is not complete.
    pub(crate) alive: Option<Arc<KeepAlive>>,
}

impl Lock {
    /// Decides what the task `id` does next, and notes it before it is done. A task that has to wait joins the queue; it is woken only
    /// after [`Lock::register`].
    pub(crate) fn poll(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Step {
        // Rule 25: a newer request replaces the holder.
        if mutant!(OlderWaitsOn => false, else request.replaces() && self.newest != id) {
            return Step::Replaced;
        }
        let waits = self.waiters.on_poll(id);
        if request.is_single_try() && attempt.sent == Sent::Ask && attempt.last_answer == LastAnswer::Busy {
            // Its one answer decides, whatever happened meanwhile.
            return Step::GiveUp;
        }
        let is_over = attempt.is_over(now);
        if request.share == Some(Share::READ)
            && !is_over
            && let Some(joined) = self.join(id, request, now, out)
        {
            return Step::Hold(joined);
        }
        let lane = self.lane_for(id, waits, request, env, now);
        let step = match lane {
            _ if is_over => Step::GiveUp,
            Some(at) => {
                let step = self.act_for_lane(at, id, request, attempt, env, now, out);
                // What was found stays until the task has left. The keeper checks whether the answer is read, and later whether the hold
                // lasts.
                if let Step::Claim(_) | Step::Ask(_) | Step::Confirm(_) | Step::Draw(..) | Step::GiveUp = step {
                    if let Some(lane) = self.lanes.get_mut(at) {
                        lane.acting = Some(Acting { id, since: now });
                    }
                    self.is_tracked = true;
                }
                step
            }
            None if request.is_try() => Step::GiveUp,
            None => Step::Wait(attempt.give_up().remaining_at(now)),
        };
        match step {
            Step::Wait(Duration::ZERO) => Step::GiveUp,
            step @ (Step::Wait(_) | Step::Withdraw(_)) => {
                if !waits {
                    self.waiters.add(id, Waiter::new(request));
                }
                // It backs off. Whatever else a task is needed for waits as long: this task would be woken for it again at once.
                if let (Step::Wait(pause), Some(_)) = (&step, lane)
                    && self.needs_task(env)
                {
                    self.pause(*pause + TICK, now);
                }
                step
            }
            step => step,
        }
    }

    /// Replaces the waker of the task `id`, which waits.
    pub(crate) fn register(&mut self, id: u64, waker: std::task::Waker, out: &mut Effects) {
        out.old_wakers.extend(self.waiters.register(id, waker));
    }

    /// Registers the first waker of a task that waits, unless the task was woken since it entered: then there may be something for it to
    /// do.
    pub(crate) fn register_unwoken(&mut self, id: u64, waker: &mut Option<std::task::Waker>) -> bool {
        self.waiters.register_unwoken(id, waker)
    }

    /// The lane for which the task `id` may act: what lies free, an ask without a task, or a new one.
    fn lane_for(
        &mut self,
        id: u64,
        waits: bool,
        request: &ResolvedRequest,
        env: &dyn Env,
        now: Moment,
    ) -> Option<usize> {
        if let Some(own) = self.lanes.iter().position(|lane| lane.is_acting(id)) {
            self.lanes.get_mut(own)?.acting = None;
            return Some(own);
        }
        let has_room = has_room(env, self.lanes.len());
        if self.waiters.has_precedence(id) {
            // The ask has to be sent again.
            let is_due = |pending: &PendingAsk| !pending.only_waits() || pending.pause_before_ask(now).is_none();
            let wants_task = |lane: &Lane| lane.is_idle_ask() && lane.pending().is_some_and(is_due);
            let free = self.lanes.iter().position(Lane::is_free);
            if let Some(at) = free.or_else(|| self.lanes.iter().position(wants_task)) {
                return Some(at);
            }
            if !has_room || !self.wants_ask(waits) {
                // The first task watches when the ask has to be repeated.
                return self.lanes.iter().position(Lane::is_idle_ask);
            }
        } else if !has_room || self.lanes.is_empty() || !self.wants_ask(waits) {
            return None;
        }
        let ask =
            PendingAsk::new(env.next_token(now, request.may_linger(), request.note()), env.share(), claim_of(request));
        self.lanes.push(Lane::new(Standing::Asking(ask)));
        Some(self.lanes.len() - 1)
    }

    /// Whether fewer asks wait in the store than tasks wait here, counting this one, which already `waits` or not.
    fn wants_ask(&self, waits: bool) -> bool {
        self.lanes.iter().filter(|lane| lane.is_idle_ask()).count() < self.idle_waiters() + usize::from(!waits)
    }

    /// Takes the grant if there is one. Then starts the hold, unless the lease must be confirmed or needs a fencing token first.
    #[expect(clippy::too_many_arguments, reason = "the lane, and the arguments of `poll`")]
    fn act_for_lane(
        &mut self,
        at: usize,
        id: u64,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Step {
        // Draw for this task and for the tasks that wait.
        let fences = match (request.fenced, request.share) {
            (false, _) => 0,
            // The next holds need no command then.
            (true, None) if request.may_linger() => MOST_FENCES,
            (true, None) => (self.waiters.fences_wanted() + u32::from(!self.waiters.has(id))).clamp(1, MOST_FENCES),
            // Rule 8: other owners draw meanwhile, and reserved tokens would be smaller than theirs.
            (true, Some(_)) => 1,
        };
        let Some(lane) = self.lanes.get_mut(at) else { return Step::GiveUp };
        if let Standing::Asking(pending) = &mut lane.standing {
            let hinted = matches!(pending.grant, Granted::Pushed(_)).then(|| Box::new(now));
            if let Some(grant) = pending.take_grant(env) {
                lane.standing = Standing::Leased(Lease::new(pending, &grant, hinted, env));
            }
        }
        let Standing::Leased(lease) = &mut lane.standing else {
            return self.step_without_lease(at, request, attempt, fences, env, now);
        };
        // Rule L1: without a command a hold starts only if there is room for it. For the first hold the store has decided.
        let sharing = lease.share.zip(lease.counted.as_ref()).filter(|_| lease.path == Path::HandOver);
        let has_room = sharing.is_none_or(|(share, counted)| share.fits_beside(counted.others()));
        if mutant!(HandOverUncounted => false, else !has_room) {
            return self.release_lane(at, env).map_or(Step::GiveUp, Step::Withdraw);
        }
        // While the keeper has no connection it could not confirm what a push said (rule 16: a push is a hint).
        let is_doubtful = lease.hinted.is_some() && env.keepers_connection().is_cut_off;
        if is_doubtful || !lease.is_good_for(request, now) {
            if let Some(step) = Step::instead_of_asking(attempt, now, true) {
                return step;
            }
            // If the process crashes before it reads the answer, a waiter has crashed, and that may cost others no more than a claim
            // (rule 11). With `at_least` others are to be kept out from the start.
            let span = if request.at_least().is_zero() { claim_of(request) } else { request.lease() };
            let renewal = lease.renewal(mutant!(ConfirmedBeforeHold => request.lease(), else span), env);
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
        if let Some(linger) = lease.linger.as_deref_mut().filter(|linger| linger.now.is_some()) {
            *linger = Linger { now: None, is_reused: true, was_used: true };
        }
        self.start(at, id, fence, request, now, out).map_or(Step::GiveUp, Step::Hold)
    }

    /// Without a lease: asks the store, or waits for what was asked.
    fn step_without_lease(
        &mut self,
        at: usize,
        request: &ResolvedRequest,
        attempt: &Attempt,
        fences: u32,
        env: &dyn Env,
        now: Moment,
    ) -> Step {
        // A store without a queue is polled. With a queue, a task only backs off.
        let pauses = self.pauses.as_ref().filter(|_| !env.kind().queues);
        let pause = pauses.map(|pauses| pauses.remaining_at(now).min(attempt.give_up().remaining_at(now)));
        let pause = pause.filter(|pause| !pause.is_zero());
        let Some(pending) = self.lanes.get_mut(at).and_then(Lane::pending_mut) else { return Step::GiveUp };
        mutant!(RetryUnderNewToken => if attempt.failures.is_some() {
            *pending = PendingAsk::new(env.next_token(now, false, None), env.share(), claim_of(request));
        });
        if pending.is_replaced {
            if request.replaces() && attempt.replacing.is_some() {
                return Step::Replaced;
            }
            // It belonged to a task that is gone.
            pending.restart(env.next_token(now, pending.token.may_linger(), request.note()));
        }
        let known = attempt.replacing.as_deref();
        // Under the token of another ask this task would keep the place of that ask.
        let is_own = |token: &Token| known.is_some_and(|known| known.name == *token);
        let is_of_another = request.replaces()
            && pending.may_stand()
            && !is_own(&pending.token)
            && !pending.replaces.as_ref().is_some_and(is_own);
        if (pending.is_forced() && !pending.is_unanswered()) || is_of_another {
            let withdrawal = pending.withdrawal(env);
            pending.restart(env.next_token(now, pending.token.may_linger(), request.note()));
            return Step::Withdraw(withdrawal);
        }
        if let Some(denial) = pending.denial.take() {
            return Step::Fail(*denial);
        }
        pending.replaces =
            request.replaces().then(|| known.map_or_else(|| pending.token.clone(), |known| known.name.clone()));
        if let Some(step) = Step::instead_of_asking(attempt, now, false).or(pause.map(Step::Wait)) {
            return step;
        }
        if pending.only_waits()
            && let Some(pause) = pending.pause_before_ask(now)
            // A single try asks once, even if it found the ask of another task.
            && let left = attempt.give_up().remaining_at(now)
            && !left.is_zero()
        {
            return Step::Wait(pause.min(left));
        }
        // The plain claim can't draw fencing tokens, is only for the exclusive lock, and does not tell waiters of a newer request.
        let is_claim = pending.is_new() && pending.share.is_none() && fences == 0 && !request.replaces();
        pending.note_sent(now, fences, !request.is_try());
        // A try for one of several keys begins a longer wait: its claim need not report whose the lock is.
        let waits = !request.is_try() || (is_claim && request.whole().is_some_and(|whole| !whole.is_try()));
        let replaces = pending.replacing(known.is_some_and(|known| known.is_known));
        let ask = Ask { wait: waits, replaces, fences, ..pending.again(env, attempt.by()) };
        if is_claim { Step::Claim(ask) } else { Step::Ask(ask) }
    }

    /// Handles the answer to a confirmation of the lease of `token` that was sent at `sent`.
    pub(crate) fn on_confirmed(
        &mut self,
        token: &Token,
        sent: Moment,
        outcome: Renewed,
        env: &dyn Env,
        out: &mut Effects,
    ) {
        self.failure = None;
        let now = env.now();
        let Some(lease) = self.lease_under(token).filter(|lease| lease.hold.is_none()) else { return };
        match outcome {
            Renewed::Until(until) => {
                lease.fresh = lease.confirm(until, now);
            }
            // The command that confirmed the lease was sent later.
            Renewed::NotOwned | Renewed::Forced if lease.is_confirmed_after(sent) => {}
            // The next step asks under a new token (rule 10: a token is never used again). What is left of the lease is in the way of
            // others: the mark of a force (rule 21: no body began), or a part of the store that still has it.
            Renewed::NotOwned | Renewed::Forced => self.release_gone(token, env, out),
        }
    }

    /// Handles the answer to the draw for the lease of `token`, which the task `id` sent at `sent`.
    ///
    /// A task that no longer acts may have been overtaken by one that has drawn greater tokens (rule L2).
    pub(crate) fn on_drawn(
        &mut self,
        (id, token, sent): (u64, &Token, Moment),
        (first, count): (Option<u64>, u32),
        env: &dyn Env,
        out: &mut Effects,
    ) {
        self.failure = None;
        let acts = self.lanes.iter().any(|lane| lane.is_acting(id));
        let Some(lease) = self.lease_under(token).filter(|lease| lease.hold.is_none()) else { return };
        match first {
            Some(first) if mutant!(OvertakenDrawCounts => false, else !acts && lease.fences.end > first) => {}
            Some(first) => {
                lease.fences = Fences::new(first, count);
                // Only an owner draws.
                lease.hinted = None;
            }
            None if lease.is_confirmed_after(sent) => {}
            None => self.release_gone(token, env, out),
        }
    }

    /// Releases a lease without a hold that the store does not know any more.
    fn release_gone(&mut self, token: &Token, env: &dyn Env, out: &mut Effects) {
        let lease = self.take_lease(|lease| lease.token == *token && lease.hold.is_none());
        mutant!(UnusedMarkLeft => return);
        out.releases.extend(lease.map(|lease| lease.release(env)));
    }

    fn start(
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
        let mut hold = ActiveHold::new(id, path, request, now);
        let is_whole = lease.is_whole_for(hold.expire, hold.renew, now);
        // After a lease that lingered: use what the store has confirmed, if so much of it is left that no renewal would be due yet.
        let enough = || hold.expire / RENEWALS_PER_LEASE * (RENEWALS_PER_LEASE - 1);
        let is_inherited = path == Path::Linger && !is_whole && lease.until.remaining_at(now) >= enough();
        hold.is_inherited = is_inherited;
        hold.confirmed = if hold.is_inherited { Some(lease.until.start()) } else { is_whole.then_some(now) };
        lease.hold = Some(hold);
        // Rule 8: other owners of a shared lock draw meanwhile. A token drawn for a task that gave up would be smaller than theirs when a
        // later hold used it.
        if mutant!(SharedFencesKept => false, else lease.share.is_some()) {
            lease.fences.forget_up_to(0);
        }
        let (token, dead_owner) = (lease.token.clone(), lease.dead_owner.take());
        let mut started = Started { id, member: 0, token, fence, path, dead_owner, alive: request.alive() };
        if let Some(hold) = lease.hold.as_mut().filter(|hold| hold.readers.is_some()) {
            (started.member, _) = hold.add_reader(request, false, now);
        }
        self.counts.count(path);
        self.forget_waiter(id, out);
        // If tasks are always polled late, the next lease gets as much time.
        self.untaken = if is_late { self.untaken } else { 0 };
        (self.pauses, self.is_tracked) = (None, true);
        if request.share == Some(Share::READ) {
            // A hold of readers has begun: wake all readers that wait now, to join it.
            let batch = self.waiters.last().unwrap_or_default();
            if let Some(readers) = self.leases_mut().find_map(Lease::readers) {
                (readers.batch, readers.since) = (batch, now);
            }
            self.waiters.wake_all(&mut out.woken);
        }
        Some(started)
    }

    /// Starts the hold of a task that adopts the lock, on the lease that the store has granted to `token`. The `grant` answers an ask that
    /// was sent at `sent`. `Err` if the adopter's lease is over by now, or another lease is younger; with the token of the process's other
    /// lease, if that one has ended in the store.
    #[expect(clippy::too_many_arguments, reason = "what was asked, and what was answered")]
    pub(crate) fn adopt(
        &mut self,
        token: &Token,
        claim: Duration,
        request: &ResolvedRequest,
        grant: &Grant,
        sent: Moment,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Result<Started, Option<Token>> {
        let now = env.now();
        let mut pending = PendingAsk::new(token.clone(), env.share(), claim);
        pending.fences = u32::from(request.fenced);
        let mut lease = Lease::new(&pending, grant, None, env);
        let fence = OnceLock::new();
        if let Some(token) = lease.fences.take().filter(|_| request.fenced) {
            let _ = fence.set(token);
        }
        if self.was_forced(token) || !lease.is_good_for(request, now) || (request.fenced && fence.get().is_none()) {
            return Err(None);
        }
        if env.share().is_none_or(|share| share == Share::READ) {
            if let Some(other) = self.leases().next() {
                return Err((!other.is_confirmed_after(sent)).then(|| other.token.clone()));
            }
            self.withdraw_asks(env, out);
        }
        self.lanes.push(Lane::new(Standing::Leased(lease)));
        self.end_use(token);
        let id = self.waiters.id_in_front();
        self.start(self.lanes.len() - 1, id, fence, request, now, out).ok_or(None)
    }

    /// Begins the time of the hold `id`, which was one of several keys until `now`. The hold's user reads from `terms` why it was lost.
    /// Returns `false` if the hold is lost.
    pub(crate) fn begin_time(
        &mut self,
        (id, member): (u64, u64),
        request: &ResolvedRequest,
        terms: Option<&Arc<Terms>>,
        now: Moment,
    ) -> bool {
        mutant!(LostWhileDrawn => return true);
        // The keeper may have taken it for a hold that needs nothing for long.
        self.is_tracked = true;
        let Some(lease) = self.lease_of_mut(id).filter(|lease| !lease.has_ended(now)) else { return false };
        let is_whole = lease.is_whole_for(request.expire, request.renew, now);
        let Some(hold) = &mut lease.hold else { return false };
        if member > 0 {
            return hold.complete_reader(member, request, terms, now);
        }
        hold.begin(request, now);
        if hold.terms.is_some() {
            hold.terms = terms.cloned();
        }
        hold.confirmed = is_whole.then_some(now);
        true
    }
}

/// The first lease to ask for (rule 11: a grant starts with a claim, which is short).
fn claim_of(request: &ResolvedRequest) -> Duration {
    mutant!(WholeLeaseClaimed => return request.expire);
    request.lease().min(CLAIM)
}
