//! [`Attempt`]: one task's attempt to get a lock, with its deadline and its history; and the reason it gets when it gives up.

use std::time::Duration;

use super::hold::ActiveHold;
use super::queue::has_room;
use super::request::ResolvedRequest;
use super::{Env, Lane, Lock, PendingAsk};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Busy, Reach, Replacing, StoreError};
use crate::timing::{ASK_BACKOFF, CLAIM, OVERTIME, RETRY_OWN_RELEASE_AFTER, SHORTEST_ANSWER};
use crate::token::Token;

/// After this many leases in a row that were over before their grants arrived, the task stops asking.
const MOST_OUTLIVED: u32 = 3;
/// Within less time a stopped server can't be told from one that is about to answer.
const USUAL_ANSWER: Duration = Duration::from_millis(20);

/// How long an answer may take for a task with this timeout. With a timeout of zero it is the command timeout, however
/// far away the server is (promise 7: a single try waits for one answer).
pub(crate) fn answer_time(timeout: Duration, command_timeout: Duration) -> Duration {
    if timeout.is_zero() { command_timeout } else { timeout.max(SHORTEST_ANSWER) }
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) started: Moment,
    timeout: Duration,
    answer_time: Duration,
    /// What was sent to the store. A timeout of zero, or near zero, still means one ask.
    pub(super) sent: Sent,
    /// What the answer to its last command said.
    pub(super) last_answer: LastAnswer,
    /// Whether the task spent its time in this process's queue.
    pub(crate) waited: bool,
    /// Whether this process itself had the lock: its release was still on its way.
    was_held_here: bool,
    // All boxed: every waiter pays for these fields, and few waiters need them.
    pub(super) failures: Option<Box<Failures>>,
    /// Why its command could not be sent yet: the connection has no room.
    pub(crate) no_room: Option<Box<StoreError>>,
    outlived: Option<Box<Outlived>>,
    /// What the store knows of a request that asks in place of the owner.
    pub(crate) replacing: Option<Box<Replacing>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Nothing,
    /// No ask that counts: the task had a lease, found here or granted, and lost it. A try still has its one ask.
    NoAsk,
    Ask,
}

/// What the answer to a task's last command said of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastAnswer {
    /// No answer, or the ask reached the server too late and the server did nothing.
    None,
    /// This process has the lock.
    Owned,
    /// Another owner has the lock.
    Busy,
    /// The task does not have the lock any more. Who has it is not known, so a single try asks again.
    Lost,
}

#[derive(Debug)]
pub(super) struct Failures {
    count: u32,
    retry_at: Deadline,
}

/// Leases in a row that were over before their grants arrived.
#[derive(Debug)]
struct Outlived {
    count: u32,
    /// How long the first of these grants took.
    took: Duration,
}

/// Why a task has no hold when its time is up.
#[derive(Debug)]
pub(crate) enum NoHold {
    /// A task here, or another process, has the lock.
    Busy { here: bool },
    /// The store has not answered for this long.
    Silent(Duration),
    /// The last command failed.
    Failed(StoreError),
}

/// Whom a task waited for, as far as the lock knows.
#[derive(Debug, Default)]
pub(crate) struct Blocker {
    /// The owner that the store has named.
    pub(crate) owner: Option<Token>,
    /// Whether its lease never ends: another client set the key without an expiry.
    is_endless: bool,
    /// What is left of its lease, as the store last said. `None` when it is not known, or should be over.
    pub(crate) frees_in: Option<Duration>,
    /// For how long it has been known: from its hold here, or from the store's answers.
    pub(crate) seen_for: Option<Duration>,
}

impl Blocker {
    /// The holder as errors name it, and the note of its request.
    pub(crate) fn holder_and_note(&self) -> (Option<String>, Option<String>) {
        match self.owner.as_ref().and_then(Token::label_and_note) {
            Some((label, note)) => (Some(label), note),
            None => (self.is_endless.then(|| "another client, without an expiry".to_owned()), None),
        }
    }
}

impl Attempt {
    pub(crate) fn new(request: &ResolvedRequest, command_timeout: Duration, now: impl FnOnce() -> Moment) -> Self {
        let (whole, timeout) = (request.whole(), request.timeout);
        // The parts that are asked for first start at the same time as the whole.
        let started = whole.filter(|whole| !whole.is_begun).map_or_else(now, |whole| whole.give_up.start());
        let answer_time = answer_time(timeout, command_timeout);
        Self {
            started,
            timeout,
            answer_time: whole.map_or(answer_time, |whole| answer_time.min(whole.latest.remaining_at(started))),
            sent: Sent::Nothing,
            last_answer: LastAnswer::None,
            waited: false,
            was_held_here: false,
            failures: None,
            no_room: None,
            outlived: None,
            replacing: None,
        }
    }

    pub(crate) fn give_up(&self) -> Deadline {
        Deadline::new(self.started, self.timeout)
    }

    /// When the last command must be answered. With a very short timeout, this is later than [`Attempt::give_up`].
    pub(crate) fn by(&self) -> Deadline {
        Deadline::new(self.started, self.answer_time)
    }

    /// Whether it is too late to succeed.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        // A single try waits for one answer. A push may grant the lock just then.
        let latest = if self.timeout.is_zero() { self.answer_time } else { self.timeout };
        let latest = latest.saturating_add(OVERTIME).max(self.by().span());
        Deadline::new(self.started, latest).remaining_at(now).is_zero()
    }

    /// Whether the time to ask the store is up. A task that `owns` the lease may overrun any timeout by one answer.
    pub(super) fn is_time_up(&self, now: Moment, owns: bool) -> bool {
        // A lease that was granted, and lost before the hold started, is no answer, unless the task was polled too late to take it.
        let is_answered = mutant!(GrantThatIsGoneIsAnswer => true, else self.last_answer != LastAnswer::Owned);
        let has_sent = self.sent != Sent::Nothing;
        let has_asked =
            mutant!(LeaseThatIsGoneIsAnswer => has_sent, else has_sent && self.sent == Sent::Ask && is_answered);
        let is_late = (!owns && (has_asked || self.waited)) || self.by().has_passed_at(now);
        self.give_up().has_passed_at(now) && is_late
    }

    /// What is left of the current back-off, capped by the time to ask.
    pub(super) fn back_off(&self, now: Moment) -> Option<Duration> {
        let pause = self.failures.as_ref()?.retry_at.remaining_at(now);
        let left = self.give_up().remaining_at(now);
        let limit = if left.is_zero() { self.by().remaining_at(now) } else { left };
        (!pause.is_zero()).then_some(pause.min(limit))
    }

    /// Notes that a lease was over before its grant arrived. Returns whether the task must report that now: another try would fare no
    /// better, and would keep out others that want a longer lease.
    pub(crate) fn note_outlived(&mut self, took: Option<Duration>) -> bool {
        if let Some(took) = took {
            // Keep the time of the first grant. When no time is left, later grants are counted from the same start.
            self.outlived.get_or_insert_with(|| Box::new(Outlived { count: 0, took })).count += 1;
        }
        self.outlived.as_ref().is_some_and(|outlived| outlived.count >= MOST_OUTLIVED)
    }

    /// Notes that a command is about to be sent: it `asks` for the lock, or is about a lease that is here.
    pub(crate) fn note_sent(&mut self, asks: bool) {
        self.count_as_sent();
        if asks {
            self.sent = Sent::Ask;
        }
        self.no_room = None;
    }

    /// Treats a task that gives up although it has a lease, or might have one, as if it had sent something for it.
    pub(crate) fn count_as_sent(&mut self) {
        if self.sent == Sent::Nothing {
            self.sent = Sent::NoAsk;
        }
    }

    /// Until when the task may wait for room on the connection. One of several keys has the time of the whole request.
    pub(crate) fn room_deadline(&self, request: &ResolvedRequest) -> Deadline {
        request.whole().filter(|whole| !whole.is_try()).map_or_else(|| self.by(), |whole| whole.give_up)
    }

    /// Handles the end of a wait for room. The time of a try counts from when its ask can be sent.
    pub(crate) fn on_room(&mut self, request: &ResolvedRequest, now: Moment) {
        if let Some(whole) = request.whole().filter(|whole| request.is_try() && !whole.is_try()) {
            mutant!(RoomCostsTime => return);
            self.started = now;
            self.answer_time = self.answer_time.min(whole.latest.remaining_at(now));
        }
    }

    pub(crate) fn record_success(&mut self, answer: LastAnswer) {
        self.failures = None;
        self.last_answer = answer;
        if let Some(replacing) = self.replacing.as_mut().filter(|_| answer != LastAnswer::None) {
            replacing.is_known = true;
        }
        mutant!(AnyAnswerIsNo => self.last_answer = LastAnswer::Busy);
        if answer == LastAnswer::Lost {
            mutant!(LossIsAnswer => return);
            self.sent = Sent::NoAsk;
        }
    }

    /// Repeats a single try that failed because of this process's own release, after as long a pause as the try took.
    pub(crate) fn restart(&mut self, now: Moment) {
        self.sent = Sent::Nothing;
        self.was_held_here = mutant!(OwnReleaseForgotten => false, else true);
        let pause = now.since(self.started).max(RETRY_OWN_RELEASE_AFTER);
        self.failures = Some(Box::new(Failures { count: 0, retry_at: Deadline::new(now, pause) }));
    }
}

impl Lock {
    /// Why the task of `attempt` has no hold when its time is up. The last answer decides (promise 7): busy when that was busy, else what
    /// failed, or that no answer arrived.
    pub(crate) fn why_no_hold(
        &self,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
    ) -> NoHold {
        mutant!(SilenceIsBusy => return NoHold::Busy { here: false });
        let is_behind_another = self.owner().is_some_and(|owner| !env.is_own_token(owner));
        if let Some(Outlived { took, .. }) = attempt.outlived.as_deref().filter(|_| !is_behind_another) {
            let (lease, more) = match request.lease() {
                lease if lease <= CLAIM => (lease, ": ask for a longer one"),
                // Rule 11: a grant starts with a claim, however long the lease is to be.
                _ => (CLAIM, ""),
            };
            let text = format!("the lease of {lease:?} was over when its grant came, after {took:?}{more}");
            return NoHold::Failed(StoreError::later(BackendError::new(text)));
        }
        if self.is_held() && !has_room(env, self.holds().count()) {
            return NoHold::Busy { here: true };
        }
        if let Some(error) = &self.failure {
            return NoHold::Failed(StoreError::clone(error));
        }
        if self.busy().is_some() || attempt.last_answer == LastAnswer::Busy {
            return NoHold::Busy { here: false };
        }
        if let Some(error) = &attempt.no_room {
            return NoHold::Failed(StoreError::clone(error));
        }
        if attempt.was_held_here {
            return NoHold::Busy { here: true };
        }
        // The task asked, and never had an answer. One that waited here first spent most of its time behind other tasks here. For a single
        // try only a busy reply counts as an answer.
        // A draw or a confirmation was answered, and then the lease went to another task here.
        let lost_lease = attempt.sent == Sent::NoAsk && attempt.last_answer == LastAnswer::Owned;
        let had_none =
            (request.is_single_try() && !lost_lease) || (attempt.last_answer == LastAnswer::None && !attempt.waited);
        let is_unanswered = attempt.sent != Sent::Nothing && had_none;
        // A task here asked before this request began, and has no answer though there was time for one. One of several keys may have less
        // time left than an answer takes.
        let began = request.whole().map_or(attempt.started, |whole| whole.give_up.start());
        let asked = self.pendings().find_map(PendingAsk::silent_since).filter(|asked| asked.since(began).is_zero());
        let has_waited_for_another = asked.is_some_and(|asked| now.since(asked) >= USUAL_ANSWER);
        if is_unanswered || has_waited_for_another {
            // The last answer decides, and it was for a part before this one. The rest of the time was shorter than an answer takes.
            if request.whole().is_some_and(|whole| whole.was_refused) {
                return NoHold::Busy { here: false };
            }
            return NoHold::Silent(now.since(attempt.started));
        }
        if attempt.last_answer == LastAnswer::Owned && !attempt.waited && attempt.is_over(now) {
            return NoHold::Failed(StoreError::polled_late());
        }
        // The task spent its time behind tasks here.
        NoHold::Busy { here: true }
    }

    /// Handles the failure of a command for `attempt`. The `deadline` for its answer counts from when the command was sent.
    pub(crate) fn on_failed_command(
        &mut self,
        attempt: &mut Attempt,
        error: StoreError,
        deadline: Deadline,
        env: &dyn Env,
        now: Moment,
    ) {
        // The task's time ran out before the command's: the answer may be on its way, and the last answer before it counts.
        let is_cut_short = error.out_of_time
            && error.reach != Reach::Unsent
            && deadline.span() < env.settings().command_timeout
            && attempt.give_up().has_passed_at(now);
        if !is_cut_short {
            self.failure = Some(Box::new(error));
        }
        // The next try follows after a pause.
        let count = attempt.failures.take().map_or(0, |failures| failures.count) + 1;
        attempt.failures = Some(Box::new(Failures { count, retry_at: Deadline::new(now, ASK_BACKOFF.pause(count)) }));
    }

    /// Whom a task waited for until it gave up.
    pub(crate) fn blocker(&self, now: Moment) -> Blocker {
        let since = || self.pendings().find_map(|pending| Some(pending.refusal.as_ref()?.since));
        let since = self.holds().next().map(|hold| hold.since).or_else(since);
        let left = |pending: &PendingAsk| Some(pending.refusal.as_ref()?.frees?.remaining_at(now));
        Blocker {
            owner: self.owner().cloned(),
            is_endless: self.busy().is_some_and(|busy| busy.endless),
            frees_in: self.pendings().filter_map(left).find(|left| !left.is_zero()),
            seen_for: since.map(|since| now.since(since)),
        }
    }

    /// The owner that the store has named.
    fn owner(&self) -> Option<&Token> {
        Some(&self.busy()?.owner).filter(|owner| owner.is_known())
    }

    pub(crate) fn note_here(&self) -> Option<&str> {
        self.holds().find_map(ActiveHold::note)
    }

    /// Since when the hold under `token` has lasted, and its note. Readers of a process share one hold, so their note is the token's.
    pub(crate) fn hold_under(&self, token: &Token) -> Option<(Moment, Option<String>)> {
        let lease = self.leases().find(|lease| lease.token == *token)?;
        let hold = lease.hold.as_ref()?;
        let note = if hold.readers.is_some() { token.note() } else { hold.note().map(str::to_owned) };
        Some((hold.since, note))
    }

    /// The owner that made the store refuse the ask, if this process made its token, and the lock has not been granted meanwhile.
    pub(crate) fn own_owner(&self, env: &dyn Env) -> Option<Token> {
        let busy = self.pendings().filter(|pending| !pending.is_granted()).find_map(PendingAsk::busy)?;
        Some(&busy.owner).filter(|owner| env.is_own_token(owner) && !owner.is_marked()).cloned()
    }

    /// How long the store took to grant the lease for which the task `id` acts, if the lease was over before the grant arrived. Another
    /// task here may have asked for a shorter one, which says nothing about the `request`.
    pub(crate) fn outlived_lease(
        &self,
        id: u64,
        request: &ResolvedRequest,
        now: Moment,
        env: &dyn Env,
    ) -> Option<Duration> {
        let lease = self.lanes.iter().find(|lane| lane.is_acting(id)).and_then(Lane::lease)?;
        lease.outlived(now, env.settings().drift()).filter(|_| lease.claim >= request.lease().min(CLAIM))
    }

    fn busy(&self) -> Option<&Busy> {
        self.pendings().find_map(PendingAsk::busy)
    }
}
