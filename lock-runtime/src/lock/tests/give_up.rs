//! A task gives up: what is it told? (Promise 7: the last answer decides.)

use super::*;
use crate::BackendError;
use crate::protocol::{Reach, StoreError};

/// A task that gives up, and what it knows.
struct GivingUp {
    stage: Stage,
    request: ResolvedRequest,
    attempt: Attempt,
}

impl GivingUp {
    /// It has asked. Then its ask was withdrawn, so the lock knows nothing of it any more.
    fn after_ask(request: ResolvedRequest) -> Self {
        let mut stage = Stage::new();
        let id = stage.enter_first(&request);
        stage.ask(id, &request);
        stage.leave(id);
        let mut attempt = Attempt::new(&request, Duration::from_millis(500), || stage.now());
        attempt.note_sent(true);
        Self { stage, request, attempt }
    }

    /// Another task here has asked. Returns its ask.
    fn behind_sibling(request: ResolvedRequest) -> (Self, Ask) {
        let mut stage = Stage::new();
        let sibling = stage.enter_first(&request);
        let ask = stage.ask(sibling, &request);
        let attempt = Attempt::new(&request, Duration::from_millis(500), || stage.now());
        (Self { stage, request, attempt }, ask)
    }

    fn told(mut self, told: Told) -> Self {
        self.attempt.record_success(told);
        self
    }

    /// Its command failed that had this much time: without an answer, or as `reach` says.
    fn failed(mut self, time: Duration, reach: Reach) -> Self {
        let error = StoreError { out_of_time: true, reach, ..StoreError::later(BackendError::new("no answer")) };
        let deadline = Deadline::new(self.stage.now(), time);
        self.stage.let_pass(time);
        let (env, now) = (&self.stage.env, self.stage.now());
        self.stage.lock.on_failed_command(&mut self.attempt, error, deadline, env, now);
        self
    }

    /// In one word.
    fn word(&self) -> &'static str {
        let Self { stage, request, attempt } = self;
        match stage.lock.why_no_hold(request, attempt, &stage.env, stage.now()) {
            NoHold::Busy { here: true } => "here",
            NoHold::Busy { here: false } => "busy",
            NoHold::Silent(_) => "silent",
            NoHold::Failed(_) => "failed",
        }
    }
}

#[test]
fn a_task_says_busy_only_when_its_last_answer_was() {
    let words = |bug| {
        let _seeded = Seeded::begin(bug);
        [Told::No, Told::Nothing, Told::Lost].map(|told| GivingUp::after_ask(single_try()).told(told).word())
    };
    assert_eq!(words(None), ["busy", "silent", "silent"]);
    assert_eq!(words(Some(Mutant::SilenceIsBusy)), ["busy"; 3]);
}

#[test]
fn who_waited_behind_a_task_here_is_told_what_the_store_has_told_that_one() {
    let (mut task, ask) = GivingUp::behind_sibling(request());
    task.stage.let_pass(Duration::from_millis(100));
    assert_eq!(task.word(), "silent");
    task.stage.refuse(&ask);
    assert_eq!(task.word(), "busy");
    let task = task.failed(Duration::from_millis(500), Reach::Unanswered);
    assert_eq!(task.word(), "failed", "the last answer decides");
}

#[test]
fn what_happens_here_is_known_without_the_store() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let attempt = Attempt::new(&single_try(), Duration::from_secs(1), || stage.now());
    assert_eq!(GivingUp { stage, request: single_try(), attempt }.word(), "here");
    for (bug, word) in [(None, "here"), (Some(Mutant::OwnReleaseForgotten), "silent")] {
        let _seeded = Seeded::begin(bug);
        let mut task = GivingUp::after_ask(single_try());
        task.attempt.restart(task.stage.now());
        task.attempt.note_sent(true);
        assert_eq!(task.word(), word, "{bug:?}");
    }
}

/// A command that had the whole command timeout is an answer: the server gave none. One that the task's own timeout cut short is none.
#[test]
fn a_command_that_the_timeout_cut_short_says_nothing_of_the_store() {
    let word = |time, reach| {
        let request = ResolvedRequest { timeout: Duration::from_millis(time), ..request() };
        let (mut task, ask) = GivingUp::behind_sibling(request);
        task.stage.refuse(&ask);
        task.failed(Duration::from_millis(time), reach).word()
    };
    assert_eq!([10, 499, 500].map(|time| word(time, Reach::Unanswered)), ["busy", "busy", "failed"]);
    assert_eq!([10, 500].map(|time| word(time, Reach::Unsent)), ["failed"; 2], "there is no connection");
}

/// What was granted to it is no permit that it may have, or was taken by force before the hold began. Whether the lock is free is not
/// known.
#[test]
fn a_single_try_whose_grant_is_gone_asks_again() {
    for (bug, is_over) in [(None, false), (Some(Mutant::GrantThatIsGoneIsAnswer), true)] {
        let _seeded = Seeded::begin(bug);
        let task = GivingUp::after_ask(single_try()).told(Told::Yes);
        assert_eq!(task.attempt.is_time_up(task.stage.now(), false), is_over);
    }
}
