//! A task enters.

use super::*;

#[test]
fn the_first_task_asks_and_the_next_waits() {
    let mut stage = Stage::new();
    let first = stage.enter_first(&request());
    assert!(matches!(stage.step(first, &request()), Step::Claim(_)) && !stage.lock.is_held());
    stage.wait(&request());
    assert_eq!(stage.lock.waiting(), 2, "the task that asks waits, too");
}

#[test]
fn a_single_try_does_not_wait_here() {
    let mut stage = Stage::new();
    let first = stage.enter_first(&request());
    assert!(matches!(stage.enter(&single_try()), Entered::Taken), "a task here asks");
    let ask = stage.ask(first, &request());
    stage.grant(&ask);
    assert!(matches!(stage.step(first, &request()), Step::Hold(_)));
    assert!(matches!(stage.enter(&single_try()), Entered::Taken));
}

#[test]
fn a_request_that_replaces_the_holder_does_not_wait_for_it() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let newest = ResolvedRequest { on_busy: OnBusy::Replace, ..request() };
    assert!(matches!(stage.enter(&newest), Entered::InTheWay));
}

#[test]
fn a_lease_that_lingers_is_there_at_once() {
    let mut stage = Stage::new();
    let lingers = ResolvedRequest { linger_cs: 50, ..request() };
    let first = stage.hold(&lingers);
    assert!(matches!(stage.end(first), Ending::Kept));
    assert!(matches!(stage.enter(&lingers), Entered::First { has_lease: true, .. }));
}

/// Rule S5: no reader overtakes a waiting writer.
#[test]
fn a_reader_joins_the_readers_that_hold_the_lock_unless_somebody_waits() {
    for (bug, others_wait, joins) in
        [(None, false, true), (None, true, false), (Some(Mutant::ReadersOvertakeWriter), true, true)]
    {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::sharing(Some(Share::READ));
        stage.hold(&reader());
        if others_wait {
            stage.contend();
        }
        assert_eq!(matches!(stage.enter(&reader()), Entered::Joined(_)), joins, "{bug:?}");
    }
}

/// The readers that hold the lock use a short lease, which is always long enough for them.
#[test]
fn a_reader_that_wants_a_long_lease_joins_readers_with_a_short_one() {
    let short = ResolvedRequest { expire: Duration::from_millis(500), ..reader() };
    for (bug, joins) in [(None, true), (Some(Mutant::NewcomerIsMeasure), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::sharing(Some(Share::READ));
        stage.hold(&short);
        stage.let_pass(short.expire / 3);
        assert_eq!(matches!(stage.enter(&reader()), Entered::Joined(_)), joins, "{bug:?}");
    }
}
