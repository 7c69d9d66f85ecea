//! The manager is shut down.

use super::*;

#[test]
fn all_who_wait_are_called_and_nothing_is_left_of_them() {
    let mut stage = Stage::new();
    let id = stage.hold(&request());
    let waiting = [(); 3].map(|()| stage.wait(&request()));
    stage.env.is_closed.set(true);
    stage.lock.close().for_each(TaskWaker::wake);
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
    stage.lock.close().for_each(TaskWaker::wake);
    stage.pass_over();
    assert!(!stage.lock.is_taken(), "it keeps no place");
    assert!(stage.lock.take_unused_lease(&stage.env).is_some());
    assert!(stage.lock.forget_if_unused().is_some());
}
