//! A store without a queue is polled.

use super::*;
use crate::timing::{POLL_PAUSE, POLL_PAUSE_AFTER_STREAK, POLL_PAUSE_OF_OWN_RELEASE};

/// How long the task waits before it asks.
fn pause(stage: &mut Stage, id: u64) -> Duration {
    match stage.step(id, &request()) {
        Step::Wait(pause) => pause,
        Step::Claim(_) | Step::Ask(_) => Duration::ZERO,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_that_is_refused_asks_again_after_a_pause_and_has_no_place_in_a_queue() {
    for (bug, is_pausing) in [(None, true), (Some(Mutant::PolledWithoutPause), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::polling();
        let id = stage.enter_first(&request());
        let ask = stage.ask(id, &request());
        assert!(stage.refuse(&ask), "there is nothing to withdraw");
        assert!(!stage.lock.is_queued());
        let [shortest, longest] = POLL_PAUSE;
        assert_eq!((shortest..=longest).contains(&pause(&mut stage, id)), is_pausing, "{bug:?}");
        stage.let_pass(longest);
        let again = stage.ask(id, &request());
        assert_eq!(again.token, ask.token, "it was not granted");
        stage.leave(id);
        assert_eq!(stage.effects.withdrawals.len(), 1, "the earlier ask has no answer");
    }
}

/// This process's own release is still on its way.
#[test]
fn a_task_that_its_own_process_blocks_asks_again_soon() {
    let mut stage = Stage::polling();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    let owner = stage.env.next_token(stage.env.now(), false, None);
    stage.answer(&ask, Answer::Busy(Busy { owner, ..busy("x") }));
    let [shortest, longest] = POLL_PAUSE_OF_OWN_RELEASE;
    assert!((shortest..=longest).contains(&pause(&mut stage, id)));
}

/// Rule 10: the token is not used again. Some servers may have granted the lock; that is withdrawn, perhaps after the next ask.
#[test]
fn what_a_refused_ask_may_have_left_is_withdrawn_and_not_asked_for_again() {
    for (bug, is_kept) in [(None, false), (Some(Mutant::RefusedTokenKept), true)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::polling();
        let id = stage.enter_first(&request());
        let ask = stage.ask(id, &request());
        let stands = || Answer::Busy(Busy { stands: true, ..busy("x") });
        assert!(!stage.answer(&ask, stands()), "it is to be withdrawn");
        assert_eq!(stage.lock.pendings().any(|pending| pending.token == ask.token), is_kept, "{bug:?}");
        if !is_kept {
            assert!(!stage.answer(&ask, stands()), "so are the possible grants of its repetition");
            stage.leave(id);
            assert!(stage.effects.withdrawals.is_empty());
        }
    }
}

/// This process does not learn whether others wait, so it lets them ask first.
#[test]
fn after_a_streak_the_next_task_here_polls_later_than_other_processes() {
    for (bug, is_late) in [(None, true), (Some(Mutant::PolledAfterStreak), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::polling();
        let id = stage.hold(&request());
        stage.contend();
        stage.let_pass(STREAK_TIME);
        let next = stage.wait(&request());
        assert!(matches!(stage.end(id), Ending::Free(_)));
        let [shortest, longest] = POLL_PAUSE_AFTER_STREAK;
        assert_eq!((shortest..=longest).contains(&pause(&mut stage, next)), is_late, "{bug:?}");
    }
}
