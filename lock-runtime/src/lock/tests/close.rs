//! The manager is shut down.

use super::*;

#[test]
fn all_waiters_are_woken_and_nothing_is_left_of_them() {
    let mut stage = Stage::new();
    let id = stage.hold(&request());
    let waiting = [(); 3].map(|()| stage.wait(&request()));
    stage.close(|_| true);
    assert_eq!(stage.woken(), waiting);
    assert!(stage.lock.is_held(), "the hold goes on");
    assert!(matches!(stage.end(id), Ending::Free(_)) && stage.is_unused());
}

#[test]
fn a_task_that_is_not_polled_is_not_waited_for() {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    stage.wait(&request());
    assert!(matches!(stage.end(first), Ending::Kept));
    stage.close(|_| true);
    assert!(stage.effects.leaves, "it keeps no place");
    stage.tell(|lock, env, out| lock.release_unused(env, out));
    assert!(stage.effects.releases.len() == 1 && stage.is_unused());
}

/// The shutdown waits for the body in which this task waits.
#[test]
fn a_task_that_waits_inside_a_body_keeps_waiting() {
    let mut stage = Stage::new();
    let inside = ResolvedRequest { is_inside: true, ..request() };
    let first = stage.hold(&request());
    let (other, nested) = (stage.wait(&request()), stage.wait(&inside));
    stage.close(|waiter| !waiter.is_inside);
    assert_eq!(stage.woken(), [other]);
    stage.end(first);
    assert!(stage.woken() == [nested] && stage.takes(nested, &inside));
}
