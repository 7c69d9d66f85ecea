//! A task gives up: what is it told? (Promise 7: a busy lock and an unreachable store never look alike.)

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
    /// It has asked. Then it lost its turn, so the lock knows nothing of it any more.
    fn after_ask(request: ResolvedRequest) -> Self {
        let mut stage = Stage::new();
        let id = stage.enter_first(&request);
        stage.ask(id, &request);
        stage.pass(id);
        let mut attempt = Attempt::new(&request, Duration::from_secs(1), || stage.now());
        attempt.note_sent(true);
        Self { stage, request, attempt }
    }

    /// It has waited for a sibling, and asks for nothing.
    fn behind_sibling(request: ResolvedRequest) -> Self {
        let stage = Stage::new();
        let mut attempt = Attempt::new(&request, Duration::from_secs(1), || stage.now());
        attempt.counts_from(stage.env.answers.get());
        Self { stage, request, attempt }
    }

    fn told(mut self, told: Told) -> Self {
        self.attempt.record_success(told);
        self
    }

    fn after(self, span: Duration) -> Self {
        self.stage.let_pass(span);
        self
    }

    /// Its command had until `span` after the call, and failed: the time was over.
    fn failed(mut self, span: Duration, reach: Reach) -> Self {
        let error = StoreError { out_of_time: true, reach, ..StoreError::later(BackendError::new("no answer")) };
        let deadline = Deadline::new(self.attempt.started, span);
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
            NoHold::Unknown(error) if error.problem.to_string().contains("polled again") => "late",
            NoHold::Unknown(_) => "failed",
        }
    }
}

#[test]
fn a_single_try_says_busy_only_when_it_was_told_so() {
    let words = |bug| {
        let _seeded = Seeded::begin(bug);
        [Told::No, Told::Missed, Told::Nothing, Told::Lost]
            .map(|told| GivingUp::after_ask(single_try()).told(told).word())
    };
    assert_eq!(words(None), ["busy", "late", "silent", "silent"]);
    assert_eq!(words(Some(Mutant::UnreadIsBusy)), ["busy"; 4]);
}

#[test]
fn a_single_try_that_was_polled_too_late_says_so() {
    let words = |bug| {
        let _seeded = Seeded::begin(bug);
        [1000, 1040, 1060].map(|ms| GivingUp::after_ask(single_try()).after(Duration::from_millis(ms)).word())
    };
    assert_eq!(words(None), ["silent", "silent", "late"]);
    assert_eq!(words(Some(Mutant::UnreadIsSilence)), ["silent"; 3]);
}

#[test]
fn a_single_try_that_came_behind_an_answered_sibling_is_told_what_that_sibling_was() {
    let words = |bug| {
        let _seeded = Seeded::begin(bug);
        [0, 1].map(|answers| {
            let mut task = GivingUp::behind_sibling(single_try());
            task.attempt.note_sent(true);
            task.stage.env.answers.set(answers);
            task.word()
        })
    };
    assert_eq!(words(None), ["silent", "busy"]);
    assert_eq!(words(Some(Mutant::SiblingBeforeForgotten)), ["silent", "silent"]);
}

#[test]
fn a_task_that_waited_for_siblings_without_an_answer_says_that_the_server_is_silent() {
    let word = |bug, silent_for: Option<u64>| {
        let _seeded = Seeded::begin(bug);
        let mut task = GivingUp::behind_sibling(request());
        task.stage.env.answers.set(1);
        task.attempt.waited = true;
        task.stage.env.silent_for.set(silent_for.map(Duration::from_millis));
        task.word()
    };
    assert_eq!([None, Some(40), Some(60)].map(|silent| word(None, silent)), ["busy", "busy", "silent"]);
    assert_eq!(word(Some(Mutant::EarlierSilenceForgotten), Some(60)), "busy");
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

/// Whether a failure says something of the store depends on how long the store had, and on whether the task was there to read.
#[test]
fn a_command_that_had_no_time_says_nothing_of_the_store() {
    let short = || ResolvedRequest { timeout: Duration::from_millis(10), ..request() };
    let word = |after, reach| {
        let task = GivingUp::after_ask(short()).after(Duration::from_millis(after));
        task.failed(Duration::from_millis(10), reach).word()
    };
    // The time from its call until it reads of the failure.
    assert_eq!([15, 25, 70].map(|after| word(after, Reach::Unanswered)), ["busy", "failed", "busy"]);
    assert_eq!([15, 25, 70].map(|after| word(after, Reach::Unsent)), ["failed", "failed", "busy"], "not cut short");
}

#[test]
fn a_task_that_comes_late_to_a_failed_connection_tells_of_the_outage_alone() {
    let word = |bug, is_away| {
        let _seeded = Seeded::begin(bug);
        let task = GivingUp::after_ask(request()).after(Duration::from_secs(3));
        task.stage.env.is_away.set(is_away);
        task.failed(Duration::from_secs(2), Reach::Unsent).word()
    };
    assert_eq!([true, false].map(|is_away| word(None, is_away)), ["failed", "late"]);
    assert_eq!(word(Some(Mutant::UnsentIsBusy), false), "busy");
}

#[test]
fn a_single_try_whose_turn_another_task_here_has_taken_is_busy() {
    let words = |bug| {
        let _seeded = Seeded::begin(bug);
        [Told::Yes, Told::Nothing].map(|told| {
            let mut task = GivingUp::after_ask(single_try()).told(told);
            task.attempt.is_seized = true;
            task.word()
        })
    };
    assert_eq!(words(None), ["here", "here"]);
    assert_eq!(words(Some(Mutant::SeizedTryIsLate)), ["late", "silent"]);
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

/// A moment later the sibling is gone, and with it what it was told.
#[test]
fn a_single_try_is_told_what_its_sibling_was_in_the_look_that_finds_it() {
    let mut stage = Stage::new();
    let sibling = stage.enter_first(&request());
    let ask = stage.ask(sibling, &request());
    stage.refuse(&ask);
    let (request, mut attempt) = (single_try(), Attempt::new(&single_try(), Duration::from_secs(1), || stage.now()));
    attempt.counts_from(stage.env.answers.get());
    let outcome = stage.lock.outcome_of_turn(0, &request, &attempt, &stage.env);
    assert!(matches!(outcome, TurnOutcome::Refused(NoHold::Busy { here: false })), "{outcome:?}");
    stage.pass(sibling);
    assert_eq!(GivingUp { stage, request, attempt }.word(), "silent");
}
