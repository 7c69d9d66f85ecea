//! The manager is shut down.

use super::*;

#[test]
fn all_who_wait_are_called_and_nothing_is_left_of_them() {
    let mut stage = Stage::new();
    let id = stage.hold(&request());
    let waiting = [(); 3].map(|()| stage.wait(&request()));
    stage.env.is_closed.set(true);
    stage.close(|_| true);
    assert_eq!(stage.called(), waiting);
    assert!(stage.lock.is_held(), "who holds the lock goes on");
    assert!(matches!(stage.end(id), Ending::Free(_)) && matches!(stage.pass(id), Passed::Nobody { .. }));
    assert!(stage.lock.forget_if_unused().is_some());
}

#[test]
fn a_task_that_is_late_is_not_waited_for() {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    stage.wait(&request());
    stage.end(first);
    stage.pass(first);
    stage.env.is_closed.set(true);
    stage.close(|_| true);
    stage.pass_over();
    assert!(!stage.lock.is_taken(), "it keeps no place");
    assert!(stage.lock.take_unused_lease(&stage.env).is_some());
    assert!(stage.lock.forget_if_unused().is_some());
}

/// The shutdown waits for the body in which it waits.
#[test]
fn who_waits_inside_of_a_body_waits_on() {
    let mut stage = Stage::new();
    let inside = ResolvedRequest { is_inside: true, ..request() };
    let first = stage.hold(&request());
    let (other, nested) = (stage.wait(&request()), stage.wait(&inside));
    stage.env.is_closed.set(true);
    stage.close(|waiter| !waiter.is_inside);
    assert_eq!(stage.called(), [other]);
    stage.end(first);
    assert!(matches!(stage.pass(first), Passed::To(_)) && stage.lock.has_turn(nested));
}
