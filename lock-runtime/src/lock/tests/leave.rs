//! A task leaves: its future is dropped, or its time is over.

use super::*;

#[test]
fn a_task_that_leaves_while_it_waits_is_not_woken() {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    let [gone, next] = [(); 2].map(|()| stage.wait(&request()));
    stage.leave(gone);
    stage.end(first);
    assert_eq!(stage.woken(), [next]);
}

/// Rule L7: a wake must not be lost with its task.
#[test]
fn a_task_that_leaves_when_it_was_woken_wakes_the_next() {
    for (bug, is_woken) in [(None, true), (Some(Mutant::DeadTaskStays), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let first = stage.hold(&request());
        let [gone, next] = [(); 2].map(|()| stage.wait(&request()));
        stage.end(first);
        assert_eq!(stage.woken(), [gone]);
        stage.leave(gone);
        assert_eq!(stage.woken() == [next], is_woken, "{bug:?}");
    }
}

/// Rule 1: an ask without an answer may be granted.
#[test]
fn what_the_last_task_has_asked_for_is_withdrawn() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    stage.leave(id);
    let withdrawal = stage.effects.withdrawals.pop().expect("it asked");
    assert_eq!((&withdrawal.token, withdrawal.claim), (&ask.token, ask.claim));
    assert!(!stage.grant(&ask), "a late grant is for no task here");
    assert!(stage.is_unused(), "nothing is left");
}

#[test]
fn what_was_refused_as_a_try_is_not_withdrawn() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&single_try());
    let ask = stage.ask(id, &single_try());
    stage.refuse(&ask);
    stage.leave(id);
    assert!(stage.effects.withdrawals.is_empty() && stage.is_unused());
}

#[test]
fn the_next_task_goes_on_with_what_was_asked() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    let next = stage.wait(&request());
    stage.leave(id);
    assert_eq!(stage.woken(), [next]);
    assert!(stage.grant(&ask));
    assert!(stage.takes(next, &request()));
}

#[test]
fn a_lease_on_which_no_hold_began_is_left_to_be_released() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    stage.grant(&ask);
    stage.leave(id);
    let released = stage.effects.withdrawals.pop().map(|release| release.token);
    assert!(released == Some(ask.token) && stage.is_unused());
}

/// The keeper is about to release the lease. So a try of this process that is refused because of it has nobody to wait for.
#[test]
fn a_lease_that_its_task_has_left_is_no_holder() {
    for (bug, is_used) in [(None, false), (Some(Mutant::LeftLeaseIsUsed), true)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let id = stage.hold(&request());
        let token = stage.token();
        assert!(stage.lock.uses(&token));
        assert!(matches!(stage.end_part(id, 0, false), Ending::Kept) && stage.effects.leaves);
        assert_eq!(stage.lock.uses(&token), is_used);
    }
}
