//! A task gives up: which error does it get? (Promise 7: the last answer decides.)

use super::*;
use crate::BackendError;
use crate::keep_alive::KeepAlive;
use crate::protocol::{Reach, StoreError};

/// A task that gives up, and what it has learned.
struct GivingUp {
    stage: Stage,
    request: ResolvedRequest,
    attempt: Attempt,
}

impl GivingUp {
    /// Has asked. The ask was then withdrawn, so the lock has forgotten it.
    fn after_ask(request: ResolvedRequest) -> Self {
        let mut stage = Stage::new();
        let id = stage.enter_first(&request);
        stage.ask(id, &request);
        stage.leave(id);
        let mut attempt = Attempt::new(&request, Duration::from_millis(500), || stage.now());
        attempt.note_sent(true);
        Self { stage, request, attempt }
    }

    /// Waits behind another task here, which has asked. Returns that ask.
    fn behind_sibling(request: ResolvedRequest) -> (Self, Ask) {
        let mut stage = Stage::new();
        let sibling = stage.enter_first(&request);
        let ask = stage.ask(sibling, &request);
        let attempt = Attempt::new(&request, Duration::from_millis(500), || stage.now());
        (Self { stage, request, attempt }, ask)
    }

    fn answered(mut self, answer: LastAnswer) -> Self {
        self.attempt.record_success(answer);
        self
    }

    /// A command with this much time has failed: without an answer, or as `reach` says.
    fn failed(mut self, time: Duration, reach: Reach) -> Self {
        let error = StoreError { out_of_time: true, reach, ..StoreError::later(BackendError::new("no answer")) };
        let deadline = Deadline::new(self.stage.now(), time);
        self.stage.let_pass(time);
        let (env, now) = (&self.stage.env, self.stage.now());
        self.stage.lock.on_failed_command(&mut self.attempt, error, deadline, env, now);
        self
    }

    /// The reason in one word.
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
fn a_task_reports_busy_only_when_its_last_answer_was_busy() {
    let words = |bug| {
        let _seeded = Seeded::begin(bug);
        [LastAnswer::Busy, LastAnswer::None, LastAnswer::Lost]
            .map(|answer| GivingUp::after_ask(single_try()).answered(answer).word())
    };
    assert_eq!(words(None), ["busy", "silent", "silent"]);
    assert_eq!(words(Some(Mutant::SilenceIsBusy)), ["busy"; 3]);
}

#[test]
fn a_waiter_behind_a_task_here_reports_the_last_answer_of_the_store() {
    let (mut task, ask) = GivingUp::behind_sibling(request());
    task.stage.let_pass(Duration::from_millis(100));
    assert_eq!(task.word(), "silent");
    task.stage.refuse(&ask);
    assert_eq!(task.word(), "busy");
    let task = task.failed(Duration::from_millis(500), Reach::Unanswered);
    assert_eq!(task.word(), "failed", "the last answer decides");
}

fn whole(begun: Moment, time: Duration) -> Whole {
    let end = Deadline::new(begun, time);
    Whole { give_up: end, latest: end, is_begun: true, was_refused: false }
}

/// From afar, the last of several keys has less time left than an answer takes: the task waited for the ones before it.
#[test]
fn one_of_several_keys_without_an_answer_is_busy_if_a_key_before_it_was() {
    for (was_refused, word) in [(false, "silent"), (true, "busy")] {
        let begun = Moment::now();
        let whole = Whole { was_refused, ..whole(begun, Duration::from_millis(500)) };
        let request = request().part_of(whole, Duration::from_millis(100), &KeepAlive::new(begun));
        let task = GivingUp::after_ask(request).failed(Duration::from_millis(100), Reach::Unanswered);
        assert_eq!(task.word(), word);
    }
}

/// From afar, the last of several keys may have less time left than an answer takes.
#[test]
fn one_of_several_keys_behind_a_task_that_asked_later_than_the_whole_request_is_busy() {
    for (before, word) in [(Duration::ZERO, "silent"), (Duration::from_secs(1), "here")] {
        let mut stage = Stage::new();
        let (begun, time) = (stage.now(), Duration::from_secs(2));
        let whole = whole(begun, time);
        let left = Duration::from_millis(100);
        let request = request().part_of(whole, left, &KeepAlive::new(begun));
        stage.let_pass(before);
        let sibling = stage.enter_first(&super::request());
        stage.ask(sibling, &super::request());
        let attempt = Attempt::new(&request, Duration::from_millis(500), || stage.now());
        stage.let_pass(left);
        assert_eq!(GivingUp { stage, request, attempt }.word(), word, "{before:?}");
    }
}

#[test]
fn a_single_try_knows_without_the_store_that_its_own_process_is_in_the_way() {
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

/// It found a free lease here and drew a token for it. Meanwhile the lease was released, and another task here asked.
#[test]
fn a_single_try_whose_lease_went_to_another_task_here_is_busy() {
    let mut task = GivingUp::after_ask(single_try());
    task.attempt = Attempt::new(&task.request, Duration::from_millis(500), || task.stage.now());
    task.attempt.note_sent(false);
    assert_eq!(task.answered(LastAnswer::Owned).word(), "here");
}

/// If a command had the whole command timeout, its failure counts: the server did not answer. If the task's own timeout was shorter, its
/// failure says nothing.
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

/// It was granted a permit that it may not have, or the grant was taken by force before the hold began. It is not known whether the lock
/// is free.
#[test]
fn a_single_try_whose_grant_is_gone_asks_again() {
    for (bug, is_over) in [(None, false), (Some(Mutant::GrantThatIsGoneIsAnswer), true)] {
        let _seeded = Seeded::begin(bug);
        let task = GivingUp::after_ask(single_try()).answered(LastAnswer::Owned);
        assert_eq!(task.attempt.is_time_up(task.stage.now(), false), is_over);
    }
}
