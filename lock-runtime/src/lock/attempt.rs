//! [`Attempt`]: one task's attempt to get a lock, with its deadline and its history.

use std::time::Duration;

use super::request::ResolvedRequest;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Answer, Ask, Replacing, StoreError};
use crate::timing::{ASK_BACKOFF, OVERTIME, RETRY_OWN_RELEASE_AFTER, SHORTEST_ANSWER};

/// How long an answer may take for a task with this timeout. With a timeout of zero it is the command timeout, however
/// far away the server is (promise 7: a single try waits for one answer).
pub(crate) fn answer_time(timeout: Duration, command_timeout: Duration) -> Duration {
    if timeout.is_zero() { command_timeout } else { timeout.max(SHORTEST_ANSWER) }
}

/// After this many grants in a row whose lease was over before they came, the task stops asking.
const MOST_OUTLIVED: u32 = 3;

/// One task's attempt to get a lock.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) started: Moment,
    timeout: Duration,
    /// How long the last command may take.
    answer_time: Duration,
    /// What was sent to the store. A timeout of zero, or near zero, means one ask, not none.
    sent: Sent,
    /// What the answer to its last command said.
    told: Told,
    /// Whether the task spent its time in the queue of the process.
    pub(crate) waited: bool,
    /// Whether this process had the lock meanwhile: its release was still on its way.
    was_held_here: bool,
    // Boxed, all: every waiter has room for this, and few waiters need it.
    failures: Option<Box<Failures>>,
    /// Why its command was not sent, while it waits for room.
    no_room: Option<Box<StoreError>>,
    outlived: Option<Box<Outlived>>,
    /// What the store knows of a request that has asked in place of the owner.
    replacing: Option<Box<Replacing>>,
}

/// What was sent to the store for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    /// No ask that counts: the task found a lease here, or was granted one, which is gone. A try still has its one ask.
    NoAsk,
    Ask,
}

/// What the answer to a task's last command said of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// There is no answer, or the server came too late to the ask and did nothing.
    Nothing,
    /// The task has the lock.
    Yes,
    /// Somebody else has the lock.
    No,
    /// The task does not have the lock any more. Nobody knows who has it, so a single try asks again.
    Lost,
}

impl Told {
    pub(crate) fn by(answer: &Answer) -> Self {
        match answer {
            Answer::Granted(_) => Self::Yes,
            Answer::Busy(_) | Answer::Replaced => Self::No,
            Answer::Late => Self::Nothing,
        }
    }
}

/// Failures in a row.
#[derive(Debug)]
struct Failures {
    count: u32,
    retry_at: Deadline,
}

/// Leases that were over before their grants came, one after another.
#[derive(Debug)]
struct Outlived {
    count: u32,
    /// How long the store took for the first of these grants.
    took: Duration,
}

impl Attempt {
    pub(crate) fn new(request: &ResolvedRequest, command_timeout: Duration, now: impl FnOnce() -> Moment) -> Self {
        let (whole, timeout) = (request.whole(), request.timeout);
        // The parts that are asked for first begin with the whole.
        let started = whole.filter(|whole| !whole.is_begun).map_or_else(now, |whole| whole.give_up.start());
        let answer_time = answer_time(timeout, command_timeout);
        Self {
            started,
            timeout,
            answer_time: whole.map_or(answer_time, |whole| answer_time.min(whole.latest.remaining_at(started))),
            sent: Sent::Nothing,
            told: Told::Nothing,
            waited: false,
            was_held_here: false,
            failures: None,
            no_room: None,
            outlived: None,
            replacing: None,
        }
    }

    /// Whether the task waits for one answer only.
    pub(crate) fn is_try(&self) -> bool {
        self.timeout.is_zero()
    }

    /// When the task stops waiting.
    pub(crate) fn give_up(&self) -> Deadline {
        Deadline::new(self.started, self.timeout)
    }

    /// When the last command must be answered: later than a very short timeout.
    pub(crate) fn by(&self) -> Deadline {
        Deadline::new(self.started, self.answer_time)
    }

    /// Whether it is too late to succeed.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        // A single try waits for one answer. Its grant may arrive in another way just then.
        let latest = if self.is_try() { self.answer_time } else { self.timeout };
        let latest = latest.saturating_add(OVERTIME).max(self.by().span());
        Deadline::new(self.started, latest).remaining_at(now).is_zero()
    }

    /// Whether this process is known to have had the lock during the attempt.
    pub(super) fn was_held_here(&self) -> bool {
        mutant!(OwnReleaseForgotten => return false);
        self.was_held_here
    }

    /// Whether the time to ask the store is up. A task that `owns` the lease may overrun any timeout by one answer.
    pub(super) fn is_time_up(&self, now: Moment, owns: bool) -> bool {
        let is_late = (!owns && (self.has_asked() || self.waited)) || self.by().has_passed_at(now);
        self.give_up().has_passed_at(now) && is_late
    }

    /// How long the back-off that is running lasts: no longer than the time to ask.
    pub(super) fn back_off(&self, now: Moment) -> Option<Duration> {
        let pause = self.failures.as_ref()?.retry_at.remaining_at(now);
        let left = self.give_up().remaining_at(now);
        let limit = if left.is_zero() { self.by().remaining_at(now) } else { left };
        (!pause.is_zero()).then_some(pause.min(limit))
    }

    /// Notes that a lease was over before its grant came. Returns whether the task must report that now: another try
    /// would fare no better, and would keep out others that want a longer lease.
    pub(crate) fn note_outlived(&mut self, took: Option<Duration>) -> bool {
        if let Some(took) = took {
            // The time of the first grant is kept. When no time is left, later grants are counted from the same start.
            self.outlived.get_or_insert_with(|| Box::new(Outlived { count: 0, took })).count += 1;
        }
        self.outlived.as_ref().is_some_and(|outlived| outlived.count >= MOST_OUTLIVED)
    }

    /// How long the store took to grant a lease that was over before its grant came.
    pub(super) fn time_of_outlived_grant(&self) -> Option<Duration> {
        self.outlived.as_ref().map(|outlived| outlived.took)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failures.is_some()
    }

    /// Whether anything was sent to the store.
    pub(super) fn has_sent(&self) -> bool {
        self.sent != Sent::Nothing
    }

    /// Whether the answer to its ask was that somebody else has the lock.
    pub(super) fn is_refused(&self) -> bool {
        self.sent == Sent::Ask && self.told == Told::No
    }

    fn has_asked(&self) -> bool {
        mutant!(LeaseThatIsGoneIsAnswer => return self.has_sent());
        mutant!(GrantThatIsGoneIsAnswer => return self.sent == Sent::Ask);
        // What was granted, and is gone before the hold began, is no answer, unless the task did not come for it.
        self.sent == Sent::Ask && self.told != Told::Yes
    }

    /// Notes that a command is about to be sent, which `asks` for the lock, or is about a lease that is here.
    pub(crate) fn note_sent(&mut self, asks: bool) {
        self.count_as_sent();
        if asks {
            self.sent = Sent::Ask;
        }
        self.no_room = None;
    }

    /// Notes that a command was not sent: there was no room for it.
    pub(crate) fn note_no_room(&mut self, error: StoreError) {
        self.no_room = Some(Box::new(error));
    }

    /// Why the last command was not sent, if there was no room for it.
    pub(super) fn lacks_room(&self) -> Option<&StoreError> {
        self.no_room.as_deref()
    }

    /// Notes that `ask` is about to be sent. From now on the request is known by the token of its first ask in place of the owner.
    pub(crate) fn note_replacing(&mut self, ask: &Ask) {
        if let (None, Some(replacing)) = (&self.replacing, &ask.replaces) {
            self.replacing = Some(Box::new(replacing.clone()));
        }
    }

    /// What the store knows of the request, if it has asked in place of the owner.
    pub(super) fn replacing(&self) -> Option<&Replacing> {
        self.replacing.as_deref()
    }

    /// The task gives up although it has a lease, or might have: as if it had sent something for it.
    pub(crate) fn count_as_sent(&mut self) {
        if self.sent == Sent::Nothing {
            self.sent = Sent::NoAsk;
        }
    }

    /// Notes the answer to the last command.
    pub(crate) fn record_success(&mut self, told: Told) {
        self.failures = None;
        self.told = told;
        if let Some(replacing) = self.replacing.as_mut().filter(|_| told != Told::Nothing) {
            replacing.is_known = true;
        }
        mutant!(AnyAnswerIsNo => self.told = Told::No);
        if told == Told::Lost {
            mutant!(LossIsAnswer => return);
            self.sent = Sent::NoAsk;
        }
    }

    /// What the answer to the last command said.
    pub(super) fn told(&self) -> Told {
        self.told
    }

    /// Repeats a single try that this process's own release refused, after as much time as it has taken so far.
    pub(crate) fn restart(&mut self, now: Moment) {
        self.sent = Sent::Nothing;
        self.was_held_here = true;
        let pause = now.since(self.started).max(RETRY_OWN_RELEASE_AFTER);
        self.failures = Some(Box::new(Failures { count: 0, retry_at: Deadline::new(now, pause) }));
    }

    /// Notes a failure: the next try comes after a pause.
    pub(super) fn record_failure(&mut self, now: Moment) {
        let before = self.failures.take().map_or(0, |failures| failures.count);
        let retry_at = Deadline::new(now, ASK_BACKOFF.pause(before + 1));
        self.failures = Some(Box::new(Failures { count: before + 1, retry_at }));
    }
}
