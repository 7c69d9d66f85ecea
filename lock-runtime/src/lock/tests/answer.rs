//! The store answers an ask.

use super::*;
use crate::token::Process;

#[test]
fn a_grant_is_a_hold_as_soon_as_its_task_is_polled() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    assert!(ask.wait && ask.claim == CLAIM, "rule 11: a grant begins with a short lease");
    assert!(stage.grant(&ask));
    assert!(matches!(stage.step(id, &request()), Step::Hold(_)));
}

#[test]
fn a_task_that_is_refused_waits_in_the_queue_of_the_store() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let step = stage.step(id, &request());
    let Step::Claim(claim) = step else { panic!("a plain claim is the cheapest: {step:?}") };
    stage.refuse(&claim);
    assert!(stage.lock.is_queued() && matches!(stage.step(id, &request()), Step::Wait(_)));
}

#[test]
fn a_second_answer_for_a_lease_changes_only_whether_others_wait() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    stage.grant(&ask);
    stage.step(id, &request());
    let until = Deadline::new(stage.now(), LEASE);
    assert!(stage.answer(&ask, Answer::Granted(Grant { until, contended: true, fence: Some(7) })));
    let now = stage.now();
    let lease = stage.lock.any_lease();
    assert!(lease.contention.is_some() && lease.fences.is_empty());
    assert!(lease.until.remaining_at(now) <= CLAIM);
}

/// Rule 1: a grant for which no task waits is released.
#[test]
fn a_grant_for_which_nobody_here_waits_differs_from_a_refusal() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    stage.leave(id);
    assert!(stage.refuse(&ask) && stage.answer(&ask, Answer::Late), "there is nothing to withdraw");
    assert!(!stage.grant(&ask));
}

#[test]
fn a_holder_elsewhere_is_named_by_its_label_or_as_one_without_an_end() {
    let ours = Process::new("ben").next_token(Moment::now(), false, None, None);
    let stranger = || Token::foreign("a stranger's");
    for (owner, endless, holder) in [
        (ours.clone(), false, Some("ben")),
        (ours, true, Some("ben")),
        (stranger(), false, None),
        (stranger(), true, Some("another client, without an expiry")),
    ] {
        let mut stage = Stage::new();
        let id = stage.enter_first(&request());
        let ask = stage.ask(id, &request());
        stage.answer(&ask, Answer::Busy(Busy { owner, endless, ..busy("x") }));
        assert_eq!(stage.lock.blocker(stage.now()).holder_and_note().0.as_deref(), holder);
    }
}

/// Rule L7: what no task takes goes back to the store. An earlier copy of the same ask may have been granted, so the ask is still
/// withdrawn when its task leaves.
#[test]
fn a_repetition_that_was_too_late_is_no_answer() {
    for (bug, is_withdrawn) in [(None, true), (Some(Mutant::LateIsAnswer), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::polling();
        let id = stage.enter_first(&request());
        let ask = stage.ask(id, &request());
        assert!(stage.answer(&ask, Answer::Late));
        stage.leave(id);
        assert_eq!(!stage.effects.withdrawals.is_empty(), is_withdrawn, "{bug:?}");
    }
}
