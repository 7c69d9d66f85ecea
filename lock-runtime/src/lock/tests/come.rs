//! A task comes when it is called, or does not come in time (rule L7).

use super::*;

/// The lock was held, and tasks wait. The first of them is called.
fn called(waiting: usize) -> (Stage, Vec<u64>) {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    let waiting = (0..waiting).map(|_| stage.wait(&request())).collect();
    stage.end(first);
    stage.pass(first);
    (stage, waiting)
}

#[test]
fn a_task_that_comes_in_time_has_the_lock() {
    let (mut stage, waiting) = called(2);
    assert!(matches!(stage.look(Trigger::Tick), Action::LookAgain));
    stage.let_pass(TURN_PATIENCE * 9 / 10);
    assert!(matches!(stage.look(Trigger::Tick), Action::LookAgain));
    assert!(matches!(stage.step(waiting[0], &request()), Step::Hold(_)));
}

#[test]
fn a_task_that_does_not_come_is_passed_over_and_acts_no_more() {
    for (bug, acts) in [(None, false), (Some(Mutant::StaleTurnActs), true)] {
        let (mut stage, waiting) = called(2);
        stage.called();
        assert!(stage.pass_over().is_none());
        assert_eq!(stage.called(), waiting[1..]);
        let _seeded = Seeded::begin(bug);
        assert_eq!(matches!(stage.step(waiting[0], &request()), Step::Hold(_)), acts, "{bug:?}");
    }
}

#[test]
fn a_late_task_has_its_old_place() {
    let (mut stage, waiting) = called(3);
    stage.pass_over();
    assert!(stage.start(waiting[1], &request()));
    let back = stage.come_late(waiting[0], &request());
    let Rejoined::Waits { patience, is_too_late: false } = back else { panic!("{back:?}") };
    stage.lock.add_waiter(waiting[0], Waiter::new(&request()).with_patience(patience));
    stage.end(waiting[1]);
    stage.pass(waiting[1]);
    assert!(stage.lock.has_turn(waiting[0]), "and not the one behind it");
}

#[test]
fn a_late_task_takes_the_turn_from_one_behind_it_that_has_not_come_either() {
    let (mut stage, waiting) = called(2);
    stage.pass_over();
    let back = stage.come_late(waiting[0], &request());
    assert!(matches!(back, Rejoined::Turn) && stage.effects.takes_turn, "{back:?}");
    assert!(matches!(stage.step(waiting[0], &request()), Step::Hold(_)));
}

/// Promise 7: the lock was held after the try began.
#[test]
fn a_single_try_that_comes_late_gets_nothing_of_what_others_waited_for() {
    for (bug, gets_it) in [(None, false), (Some(Mutant::LateTryTakesAll), true)] {
        let _seeded = Seeded::begin(bug);
        let (mut stage, waiting) = called(2);
        stage.pass_over();
        let back = stage.come_late(waiting[0], &single_try());
        assert_eq!(matches!(back, Rejoined::Turn), gets_it, "{bug:?}: {back:?}");
    }
}

#[test]
fn when_three_are_late_all_others_are_called_at_once() {
    for (bug, at_once) in [(None, true), (Some(Mutant::CalledOneByOne), false)] {
        let _seeded = Seeded::begin(bug);
        let (mut stage, waiting) = called(9);
        for _ in 0..3 {
            stage.called();
            stage.pass_over();
        }
        assert_eq!(stage.called() == waiting[3..], at_once, "{bug:?}");
    }
}

/// What no task here takes up is released when another process waits, and after 0.9 s in any case.
#[test]
fn a_lease_that_nobody_takes_up_is_not_kept_from_others() {
    for others_wait in [true, false] {
        let (mut stage, _) = called(1);
        if others_wait {
            stage.contend();
        }
        let began = stage.now();
        let mut release = stage.pass_over();
        while release.is_none() {
            release = stage.pass_over();
        }
        let kept_for = stage.now().since(began);
        assert_eq!(kept_for < TURN_PATIENCE * 2, others_wait, "{kept_for:?}");
        assert!(kept_for <= Duration::from_millis(910), "{kept_for:?}");
    }
}
