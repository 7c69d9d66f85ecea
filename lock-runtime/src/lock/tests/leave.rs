//! A task leaves: its future is dropped, or its time is up.

use super::*;

#[test]
fn a_task_that_leaves_while_it_waits_is_not_called() {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    let [gone, next] = [(); 2].map(|()| stage.wait(&request()));
    assert!(stage.lock.leave(gone).is_some());
    stage.end(first);
    stage.pass(first);
    assert_eq!(stage.called(), [next]);
    assert!(stage.lock.leave(next).is_none(), "it was called, and passes the turn on");
}

/// Rule 1: what was sent and not answered may be granted.
#[test]
fn what_the_last_task_has_asked_for_is_withdrawn() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    let Passed::Nobody { withdrawal: Some(withdrawal), lease_left: false } = stage.pass(id) else { panic!("it asked") };
    assert_eq!((&withdrawal.token, withdrawal.claim), (&ask.token, ask.claim));
    assert!(!stage.grant(&ask), "what comes now is for nobody here");
    assert!(stage.lock.forget_if_unused().is_some(), "nothing is left");
}

#[test]
fn what_was_refused_as_a_try_is_not_withdrawn() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&single_try());
    let ask = stage.ask(id, &single_try());
    stage.refuse(&ask);
    assert!(matches!(stage.pass(id), Passed::Nobody { withdrawal: None, .. }));
}

#[test]
fn the_next_task_goes_on_with_what_was_asked() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let next = stage.wait(&request());
    let ask = stage.ask(id, &request());
    assert!(matches!(stage.pass(id), Passed::To(_)));
    assert_eq!(stage.called(), [next]);
    assert!(stage.grant(&ask));
    assert!(matches!(stage.step(next, &request()), Step::Hold(_)));
}

#[test]
fn a_lease_on_which_no_hold_began_is_left_to_be_released() {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    stage.grant(&ask);
    stage.step(id, &request());
    assert!(matches!(stage.pass(id), Passed::Nobody { lease_left: true, .. }));
    assert_eq!(stage.lock.take_unused_lease(&stage.env).map(|release| release.token), Some(ask.token));
}

#[test]
fn a_turn_that_was_taken_away_passes_nothing_on() {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    let late = stage.wait(&request());
    stage.end(first);
    stage.pass(first);
    stage.pass_over();
    assert!(matches!(stage.pass(late), Passed::Revoked { was_late: true } | Passed::Nobody { lease_left: true, .. }));
    assert!(!stage.lock.is_taken());
}

/// The keeper is about to release the lease: a try of this process that is refused by it has nobody to wait for.
#[test]
fn a_lease_that_its_task_has_left_is_no_holder() {
    for (bug, is_used) in [(None, false), (Some(Mutant::LeftLeaseIsUsed), true)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let id = stage.hold(&request());
        let token = stage.lock.lease().unwrap().token.clone();
        assert!(stage.lock.uses(&token));
        stage.tell(|lock, env, out| lock.end_dropped(id, false, env, env.now(), out));
        assert!(stage.lock.uses(&token), "the turn is not passed on yet");
        stage.pass(id);
        assert_eq!(stage.lock.uses(&token), is_used);
    }
}
