//! [`Turn`]: the right to act for one key in this process.

use std::sync::Arc;
use std::time::Duration;

use super::lease::{Asked, Fences, Lease};
use super::slot::{PassedBy, Slot, State};
use super::terms::Terms;
use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::store::{Answer, Ask, CLAIM, Cause, Release, Renewal, Renewed, Store};
use crate::token::Token;

/// A lease reserves no more fencing tokens than this, so that they never run far ahead of the clock.
const MOST_FENCES: u32 = 64;
/// A timeout that is next to zero still has to wait for one answer.
pub(crate) const SHORTEST_ANSWER: Duration = Duration::from_millis(80);

/// How long an answer may take, for whoever asks with this timeout: with a timeout of zero as long as any command may,
/// however far away the server is (promise 7: a single try waits for one answer).
pub(crate) fn answer_time(timeout: Duration, command_timeout: Duration) -> Duration {
    if timeout.is_zero() { command_timeout } else { timeout.max(SHORTEST_ANSWER) }
}
/// So often in a row a lease is asked for that is over when its grant comes.
const MOST_OUTLIVED: u32 = 3;
/// So much later than its timeout an acquire may still succeed: what was granted in time is not thrown away.
const OVERTIME: Duration = Duration::from_millis(50);
/// The shortest pause before a single try is repeated that came just before a release of its own process.
const TOO_EARLY: Duration = Duration::from_millis(2);
/// A waiter repeats its ask at most this often (rule 5). A lost wake-up costs at most a second (promise 4): this, the age that
/// an answer may have without being asked for again (`JUST_NOW`), and a round trip.
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(900);

/// The turn in a slot. Dropping it passes it on, and gives back what nobody needs any more.
#[derive(Debug)]
pub(crate) struct Turn {
    slot: Arc<Slot>,
    id: u64,
    is_armed: bool,
}

/// What the task with the turn has to do next.
pub(super) enum Step {
    /// The lease is good: start the hold.
    Hold,
    /// Take the lock by the plain claim.
    Claim(Ask),
    /// Ask by script, and queue.
    Ask(Ask),
    /// Confirm the lease before the hold starts.
    Confirm(Renewal),
    /// Draw fencing tokens.
    Draw(Token, u32),
    /// Take back an ask.
    TakeBack(Release),
    /// Wait for a change, at most for so long.
    Wait(Duration),
    /// Wait again at its old place: the turn was passed over (rule L7).
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

    /// Whether it leaves the task waiting for others.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Ask(Ask { wait: true, .. }))
    }
}

impl Turn {
    pub(crate) fn new(slot: &Arc<Slot>, id: u64) -> Self {
        Self { slot: Arc::clone(slot), id, is_armed: true }
    }

    /// Gives up the turn without passing it on.
    pub(super) fn defuse(mut self) {
        self.is_armed = false;
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.slot.engine
    }

    /// Decides what to do next, and notes it down before it is done: whatever happens to the task, dropping the turn
    /// then knows what to withdraw.
    pub(super) fn step(&self, terms: &Terms, attempt: &Attempt, now: Moment) -> Step {
        let state = &mut *self.slot.locked();
        if !state.has_turn(self.id) && !mutant!(StaleTurnActs) {
            return if attempt.is_over(now) { Step::GiveUp } else { Step::Rejoin };
        }
        state.calls.answer(self.id);
        let fences = if terms.fenced { (1 + state.fenced_waiters()).min(MOST_FENCES) } else { 0 };
        if let Some(granted) = state.asked.as_mut().and_then(|asked| asked.take_grant())
            && let Some(asked) = state.asked.take()
        {
            let mut lease = Lease::new(&asked, &granted, asked.fences);
            // Asked for by a task that wanted less, and gave up: good for this one only when it is confirmed.
            lease.fresh &= lease.claim >= terms.expire.min(CLAIM);
            state.lease = Some(lease);
        }
        if let Some(lease) = &mut state.lease {
            if !lease.is_good_for(terms, now) {
                let renewal = Renewal {
                    key: Arc::clone(&terms.key),
                    token: lease.token.clone(),
                    lease: terms.expire,
                    grace: self.slot.engine.settings().grace,
                };
                lease.seek(&renewal, now);
                return self.act(state, attempt, now).unwrap_or(Step::Confirm(renewal));
            }
            if terms.fenced && lease.fences.is_empty() {
                let token = lease.token.clone();
                return self.act(state, attempt, now).unwrap_or(Step::Draw(token, fences));
            }
            return if attempt.is_over(now) { Step::GiveUp } else { Step::Hold };
        }
        if mutant!(RetryUnderNewToken) && attempt.has_failed() {
            state.asked = None;
        }
        let claim = mutant!(WholeLeaseClaimed => terms.expire, terms.expire.min(CLAIM));
        let asked = state.asked.get_or_insert_with(|| Box::new(Asked::new(self.slot.engine.next_token(), claim)));
        if asked.yields() {
            let withdrawal = asked.withdrawal(&terms.key);
            asked.begin_anew(self.slot.engine.next_token());
            return Step::TakeBack(withdrawal);
        }
        let is_first = asked.answered.is_none() && !asked.unanswered && !asked.queued;
        if let Some(step) = attempt.pause(now, false) {
            if let Step::Wait(pause) = step {
                state.calls.act(now, Some(pause));
                state.enlist(&self.slot);
            }
            return step;
        }
        if asked.queued
            && !asked.doubtful
            && !asked.granted_in_part
            && !asked.unanswered
            && let Some(pause) = asked.next_ask(now)
            // A single try that took up a turn which another task left asks once, too.
            && let left = attempt.give_up().remaining_at(now)
            && !left.is_zero()
        {
            return Step::Wait(pause.min(left));
        }
        asked.was_unanswered = asked.unanswered;
        // The keeper looks whether the answer is read, and then whether the hold lasts.
        state.young.get_or_insert_with(|| self.engine().keeper().enlist(&self.slot));
        asked.unanswered = !mutant!(NotedAfterSending);
        asked.sent = Some(now);
        state.calls.awaits = Some(now);
        asked.fences = fences;
        let ask = Ask {
            key: Arc::clone(&terms.key),
            token: asked.token.clone(),
            claim: asked.claim,
            wait: !terms.timeout.is_zero(),
            fences,
            give_up: attempt.by(),
            cause: if std::mem::take(&mut asked.granted_in_part) { Cause::Push } else { Cause::Task },
        };
        // The plain claim can't draw fencing tokens.
        if is_first && (fences == 0 || !self.slot.engine.store().draws_with_grants()) {
            Step::Claim(ask)
        } else {
            Step::Ask(ask)
        }
    }

    /// What stands in the way of a command about the lease; if nothing does, the answer has to be read in time.
    fn act(&self, state: &mut State, attempt: &Attempt, now: Moment) -> Option<Step> {
        let step = attempt.pause(now, true);
        state.calls.act(now, step.as_ref().and_then(Step::pause));
        state.enlist(&self.slot);
        step
    }

    /// Takes in the answer to an ask.
    pub(super) fn answered(&self, ask: &Ask, answer: Answer) {
        let granted = matches!(answer, Answer::Granted(_));
        // Of a task that was passed over, the others know better by now who has the lock.
        if (granted || self.slot.locked().has_turn(self.id)) && !self.slot.answered(ask, answer) {
            // What was asked has been taken back meanwhile, perhaps before it was executed.
            self.engine().withdraw(ask.withdrawal());
        }
    }

    /// Takes in the answer to a plain claim.
    pub(super) fn claimed(&self, ask: &Ask, answer: Answer) {
        self.answered(&Ask { wait: false, ..ask.clone() }, answer);
    }

    /// Takes in the answer to a confirmation.
    pub(super) fn confirmed(&self, outcome: Renewed) {
        let mut state = self.slot.locked();
        if !state.acts(self.id) {
            return;
        }
        match outcome {
            Renewed::Until(until) => {
                if let Some(lease) = &mut state.lease {
                    lease.fresh = lease.confirm(until);
                }
            }
            // Gone in the store: nothing to give back. The next step asks under a new token (rule L3).
            Renewed::NotOwned | Renewed::Partial => state.lease = None,
        }
        drop(state);
        self.slot.wake();
    }

    /// Takes in the answer to a draw.
    pub(super) fn drawn(&self, first: Option<u64>, count: u32) {
        let mut state = self.slot.locked();
        if !state.acts(self.id) {
            return;
        }
        match first {
            Some(first) => {
                if let Some(lease) = &mut state.lease {
                    lease.fences = Fences::new(first, count);
                }
            }
            None => state.lease = None,
        }
        drop(state);
        // For single tries, which wait for what becomes of this turn.
        self.slot.wake();
    }

    /// Notes that the lease ended with an ask in its place, sent along with the release.
    pub(super) fn yielded(&self, claim: Duration, now: Moment) -> Token {
        let mut state = self.slot.locked();
        let token = self.slot.engine.next_token();
        let mut asked = Asked::new(token.clone(), claim);
        asked.unanswered = true;
        asked.sent = Some(now);
        state.calls.awaits = Some(now);
        state.calls.is_releasing = true;
        state.enlist(&self.slot);
        state.asked = Some(Box::new(asked));
        token
    }
}

impl Asked {
    /// How long until the store is to be asked again; `None` for now.
    ///
    /// The end of the owner's lease is the time; the keeper's batches are the safety net. An owner that renews would be
    /// asked about at each of its renewals, so it is left to the safety net.
    fn next_ask(&self, now: Moment) -> Option<Duration> {
        let frees_in = self.frees.map_or(Duration::MAX, |frees| frees.remaining_at(now));
        let quiet = match self.answered {
            Some(at) if self.owner_renews => ASK_INTERVAL.saturating_sub(now.since(at)),
            _ => Duration::ZERO,
        };
        let pause = frees_in.max(quiet);
        (!pause.is_zero()).then_some(pause)
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

/// One task's attempt to get a lock: its deadline, and how it went so far.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) started: Moment,
    timeout: Duration,
    /// How long the last command may take.
    answer_time: Duration,
    /// Whether the store was asked at all: a timeout of zero, or next to zero, means once, not never.
    pub(super) tried: bool,
    /// Whether its time went by in the queue of the process.
    pub(super) waited: bool,
    /// How long the store took to grant a lease that was over by then, and how often in a row it did.
    pub(super) outlived: Option<(Duration, u32)>,
    /// How many answers the store had given, and how many holds there were, when this task began to wait for a sibling.
    before: Option<(u64, u32)>,
    /// Boxed: every waiter has room for it, and few need it.
    failures: Option<Box<Failures>>,
}

/// Failures in a row.
#[derive(Debug)]
struct Failures {
    count: u32,
    retry_at: Deadline,
}

impl Attempt {
    pub(super) fn new(timeout: Duration, command_timeout: Duration) -> Self {
        Self {
            started: Moment::now(),
            timeout,
            answer_time: answer_time(timeout, command_timeout),
            tried: false,
            waited: false,
            outlived: None,
            before: None,
            failures: None,
        }
    }

    /// When the task stops waiting.
    pub(super) fn give_up(&self) -> Deadline {
        Deadline::new(self.started, self.timeout)
    }

    /// When the last command has to be answered: later than a very short timeout.
    pub(super) fn by(&self) -> Deadline {
        Deadline::new(self.started, self.answer_time)
    }

    /// Whether it is too late to succeed.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        // A single try waits for one answer, and what it was granted may be heard of in another way just then.
        let latest = if self.timeout.is_zero() { self.answer_time } else { self.timeout };
        let latest = latest.saturating_add(OVERTIME).max(self.by().span());
        Deadline::new(self.started, latest).remaining_at(now).is_zero()
    }

    /// From now on the store's answers count, and the holds of siblings, of which there have been so many.
    pub(super) fn counts_from(&mut self, answers: u64, holds: u32) {
        self.before.get_or_insert((answers, holds));
    }

    /// Whether it has waited for the answer to a sibling.
    pub(super) fn has_counted(&self) -> bool {
        self.before.is_some()
    }

    /// Whether the store has answered nobody since.
    pub(super) fn has_counted_none(&self, answers: u64) -> bool {
        self.before.is_some_and(|(before, _)| before == answers)
    }

    /// Whether a sibling has held the lock since.
    pub(super) fn has_counted_hold(&self, holds: u32) -> bool {
        self.before.is_some_and(|(_, before)| before != holds) && !mutant!(SiblingsHoldForgotten)
    }

    /// What stands in the way of asking the store now. Whoever `owns` the lease may take the time of an answer for what is
    /// still to be done, with any timeout.
    fn pause(&self, now: Moment, owns: bool) -> Option<Step> {
        let left = self.give_up().remaining_at(now);
        let is_late = (!owns && (self.tried || self.waited)) || self.by().remaining_at(now).is_zero();
        if left.is_zero() && is_late {
            return Some(Step::GiveUp);
        }
        let pause = self.failures.as_ref().map_or(Duration::ZERO, |failures| failures.retry_at.remaining_at(now));
        let limit = if left.is_zero() { self.by().remaining_at(now) } else { left };
        (!pause.is_zero()).then(|| Step::Wait(pause.min(limit)))
    }

    /// Notes how long the store took to grant a lease that was over by then; returns whether it is time to say so. Another
    /// try would fare no better, and keep those away who want a longer lease.
    pub(super) fn note_outlived(&mut self, took: Option<Duration>) -> bool {
        if let Some(took) = took {
            let before = self.outlived.map_or(0, |(_, count)| count);
            self.outlived = Some((took, before + 1));
        }
        self.outlived.is_some_and(|(_, count)| count >= MOST_OUTLIVED)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failures.is_some()
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = None;
    }

    /// A single try that came too early to count: again, after as much time as it has taken so far.
    pub(super) fn begin_anew(&mut self) {
        self.tried = false;
        let pause = self.started.elapsed().max(TOO_EARLY);
        self.failures = Some(Box::new(Failures { count: 0, retry_at: Deadline::after(pause) }));
    }

    /// Pauses after a failure: 10 ms, doubling up to 320 ms.
    pub(super) fn failed(&mut self) {
        let before = self.failures.take().map_or(0, |failures| failures.count);
        let retry_at = Deadline::after(Duration::from_millis(10) * 2_u32.pow(before.min(5)));
        self.failures = Some(Box::new(Failures { count: before + 1, retry_at }));
    }
}
