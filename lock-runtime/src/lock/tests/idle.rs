//! A free lease is taken by a task that is polled, or goes back to the store (rule L7).

use proptest::prelude::*;

use super::*;
use crate::timing::UNUSED_LEASE_KEPT_FOR;

/// The lock was held, and tasks wait. The first one is woken.
fn free(waiting: usize) -> (Stage, Vec<u64>) {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    let waiting = (0..waiting).map(|_| stage.wait(&request())).collect();
    assert!(matches!(stage.end(first), Ending::Kept));
    (stage, waiting)
}

#[test]
fn a_task_that_is_polled_in_time_has_the_lock() {
    let (mut stage, waiting) = free(2);
    assert_eq!(stage.woken(), waiting[..1]);
    stage.look(Trigger::Tick);
    assert!(stage.takes(waiting[0], &request()));
}

/// A woken task gets some time to be polled.
#[test]
fn a_woken_task_is_not_overtaken_for_a_tick() {
    for (bug, is_overtaken) in [(None, false), (Some(Mutant::NewcomersOvertake), true)] {
        let _seeded = Seeded::begin(bug);
        let (mut stage, waiting) = free(2);
        assert_eq!(stage.takes(waiting[1], &request()), is_overtaken, "{bug:?}");
    }
    let (mut stage, waiting) = free(2);
    assert!(matches!(stage.enter(&single_try()), Entered::Taken), "nor by a try");
    assert!(!stage.tick_for(TICK * 2) && stage.takes(waiting[1], &request()), "now it is asleep");
}

#[test]
fn a_task_that_is_polled_late_has_its_old_place() {
    let (mut stage, waiting) = free(3);
    stage.tick_for(TICK * 2);
    assert!(stage.takes(waiting[1], &request()));
    assert!(matches!(stage.step(waiting[0], &request()), Step::Wait(_)));
    stage.woken();
    stage.end(waiting[1]);
    assert_eq!(stage.woken(), [waiting[0]], "and not the one behind it");
    assert!(stage.takes(waiting[0], &request()));
}

#[test]
fn a_task_that_is_polled_late_takes_what_nobody_else_has_taken() {
    let (mut stage, waiting) = free(2);
    stage.tick_for(TICK * 5);
    assert!(stage.takes(waiting[0], &request()));
}

/// All tasks are asleep.
#[test]
fn a_lease_that_nobody_takes_goes_to_the_first_task_that_is_polled() {
    let (mut stage, _) = free(1);
    assert!(!stage.tick_for(TICK * 2), "the lease is kept for a while");
    let next = stage.enter_first(&request());
    assert!(stage.takes(next, &request()));
}

#[test]
fn each_tick_wakes_twice_as_many_as_the_one_before() {
    for (bug, woken) in [(None, [1, 3, 7, 15]), (Some(Mutant::WokenOneByOne), [1, 2, 3, 4])] {
        let _seeded = Seeded::begin(bug);
        let (mut stage, _) = free(40);
        let mut all = stage.woken().len();
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(all);
            stage.tick_for(TICK);
            all += stage.woken().len();
        }
        assert!(seen.iter().zip(&seen[1..]).all(|(a, b)| a <= b) && seen[4] >= woken[2], "{bug:?}: {seen:?}");
        assert_eq!(seen[4] > 6, bug.is_none(), "{bug:?}: {seen:?}");
    }
}

/// A lease that no task takes is released when another process waits, and after 0.9 s in any case.
#[test]
fn a_lease_that_nobody_takes_is_not_kept_from_others() {
    for others_wait in [true, false] {
        for bug in [None, Some(Mutant::FreeLeaseKept)] {
            let _seeded = Seeded::begin(bug);
            let (mut stage, _) = free(1);
            if others_wait {
                stage.contend();
            }
            let kept_for = if others_wait { FREE_PATIENCE } else { UNUSED_LEASE_KEPT_FOR };
            assert!(!stage.tick_for(kept_for.saturating_sub(TICK)));
            assert_eq!(stage.tick_for(TICK * 2), bug.is_none(), "{others_wait} {bug:?}");
        }
    }
}

/// Otherwise two slow processes would pass a lock back and forth forever.
#[test]
fn a_process_that_did_not_take_a_lease_has_twice_as_long_for_the_next() {
    let (mut stage, waiting) = free(1);
    stage.contend();
    assert!(stage.tick_for(FREE_PATIENCE + TICK));
    let ask = stage.ask(waiting[0], &request());
    stage.refuse(&ask);
    assert!(matches!(stage.step(waiting[0], &request()), Step::Ask(_) | Step::Wait(_)));
    stage.push(&ask.token);
    stage.contend();
    assert!(!stage.tick_for(FREE_PATIENCE + TICK * 2));
    assert!(stage.tick_for(FREE_PATIENCE + TICK * 2));
}

/// It has sent a command, and is not polled when the answer arrives.
#[test]
fn a_task_that_does_not_read_its_answer_loses_its_turn() {
    for (bug, is_taken) in [(None, true), (Some(Mutant::OverdueTaskActs), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let unpolled = stage.enter_first(&request());
        let ask = stage.ask(unpolled, &request());
        let next = stage.wait(&request());
        stage.let_pass(FREE_PATIENCE + MOMENT);
        let action = stage.look(Trigger::Tick);
        let is_repeated = matches!(&action, Some(Action::Ask(again)) if again.token == ask.token);
        assert_eq!(is_repeated, is_taken, "{bug:?}: {action:?}");
        stage.grant(&ask);
        stage.tick_for(TICK);
        assert_eq!(stage.takes(next, &request()), is_taken, "{bug:?}");
    }
}

/// The first task asked for a lease that is as short as an answer takes.
#[test]
fn that_a_short_lease_was_over_says_nothing_about_a_request_for_a_long_one() {
    let mut stage = Stage::new();
    let short = ResolvedRequest { expire: FREE_PATIENCE, ..request() };
    let first = stage.enter_first(&short);
    let ask = stage.ask(first, &short);
    let until = Deadline::new(stage.now(), ask.claim);
    stage.let_pass(ask.claim + MOMENT);
    stage.answer(&ask, Answer::Granted(Grant { until, contended: false, fence: None }));
    assert!(matches!(stage.step(first, &short), Step::Confirm(_)));
    let now = stage.now();
    let took = |request| stage.lock.outlived_lease(first, request, now, &stage.env);
    assert!(took(&short).is_some());
    assert_eq!(took(&request()), None);
}

/// Rule L2: fencing tokens grow. Meanwhile another task has drawn greater ones.
#[test]
fn the_fencing_tokens_that_an_overtaken_task_drew_are_not_used() {
    for (bug, is_used) in [(None, false), (Some(Mutant::OvertakenDrawCounts), true)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let fenced = ResolvedRequest { fenced: true, ..request() };
        let unpolled = stage.enter_first(&fenced);
        let ask = stage.ask(unpolled, &fenced);
        stage.grant(&ask);
        assert!(matches!(stage.step(unpolled, &fenced), Step::Draw(..)), "the grant has none");
        let sent = stage.now();
        let next = stage.wait(&fenced);
        stage.tick_for(FREE_PATIENCE + TICK);
        let Step::Draw(token, _) = stage.step(next, &fenced) else { panic!("it draws as well") };
        let draws = |stage: &mut Stage, id, first| {
            stage.tell(|lock, env, out| lock.on_drawn((id, &token, sent), (Some(first), 2), env, out));
        };
        draws(&mut stage, next, 7);
        assert!(stage.takes(next, &fenced));
        assert!(matches!(stage.end(next), Ending::Kept));
        stage.lock.any_lease().fences.take();
        draws(&mut stage, unpolled, 5);
        assert_eq!(!stage.lock.any_lease().fences.is_empty(), is_used, "{bug:?}");
    }
}

/// A task enters, is polled, or leaves; a hold ends; the store answers, or reports that another process waits; time passes.
#[derive(Clone, Copy, Debug)]
enum Event {
    Comes,
    Polled(u8),
    Leaves(u8),
    Ends,
    Answers(bool),
    Contends,
    Ticks(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Comes),
        4 => any::<u8>().prop_map(Event::Polled),
        1 => any::<u8>().prop_map(Event::Leaves),
        2 => Just(Event::Ends),
        2 => any::<bool>().prop_map(Event::Answers),
        1 => Just(Event::Contends),
        4 => (1..12_u8).prop_map(Event::Ticks),
    ]
}

fn end(stage: &mut Stage, id: u64) {
    if let Ending::Free(release) = stage.end(id) {
        let _ = stage.tell(|lock, _, _| lock.end_use(&release.token));
    }
    stage.tell(|lock, _, _| lock.stop_acting(id));
}

/// How long a grant has been free.
fn free_for(stage: &Stage) -> Duration {
    let free = stage.lock.lanes.iter().filter(|lane| lane.is_free());
    free.filter_map(|lane| lane.free_since).map(|since| stage.now().since(since)).max().unwrap_or_default()
}

proptest! {
    /// Whatever the order of polls, a running task takes the lease, or the lease goes back within the bound. At most one task holds the
    /// lock, and no task is lost: each holds it, acts, or waits.
    #[test]
    fn in_any_order_of_polls_a_task_takes_the_lease_or_it_is_released(events in prop::collection::vec(event(), 0..200)) {
        let mut stage = Stage::new();
        let (mut tasks, mut held, mut asks): (Vec<u64>, Option<u64>, Vec<Ask>) = (Vec::new(), None, Vec::new());
        for event in events {
            match event {
                Event::Comes => match stage.enter(&request()) {
                    Entered::First { id, .. } => tasks.push(id),
                    Entered::Waits(id) => {
                        stage.tell(|lock, _, _| lock.wait(id, &request()));
                        tasks.push(id);
                    }
                    other => prop_assert!(false, "{other:?}"),
                },
                Event::Polled(which) if !tasks.is_empty() => {
                    let at = usize::from(which) % tasks.len();
                    match stage.step(tasks[at], &request()) {
                        Step::Hold(_) => {
                            prop_assert!(held.is_none(), "two hold the lock");
                            held = Some(tasks.remove(at));
                        }
                        Step::Claim(ask) | Step::Ask(ask) => asks.push(ask),
                        Step::Confirm(renewal) => {
                            let (sent, until) = (stage.now(), stage.until(renewal.lease));
                            stage.tell(|lock, env, out| lock.on_confirmed(&renewal.token, sent, until, env, out));
                        }
                        Step::Wait(_) | Step::Withdraw(_) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Event::Leaves(which) if !tasks.is_empty() => {
                    let id = tasks.remove(usize::from(which) % tasks.len());
                    stage.leave(id);
                }
                Event::Ends => {
                    if let Some(id) = held.take() {
                        end(&mut stage, id);
                    }
                }
                Event::Answers(is_granted) => {
                    if let Some(ask) = asks.pop() {
                        if is_granted { stage.grant(&ask) } else { stage.refuse(&ask) };
                    }
                }
                Event::Contends => stage.contend(),
                Event::Ticks(count) => {
                    if stage.lock.is_tracked() {
                        stage.tick_for(TICK * u32::from(count));
                    } else {
                        stage.let_pass(TICK * u32::from(count));
                    }
                    if held.is_some_and(|id| stage.lock.lease_of(id).is_none_or(|lease| lease.has_ended(stage.now()))) {
                        end(&mut stage, held.take().unwrap());
                    }
                    prop_assert!(free_for(&stage) <= UNUSED_LEASE_KEPT_FOR + TICK, "{:?}", stage.lock);
                    prop_assert!(free_for(&stage).is_zero() || stage.lock.is_tracked(), "nobody looks after the free lease");
                }
                Event::Polled(_) | Event::Leaves(_) => {}
            }
            let is_known = |id: &u64| {
                stage.entrants.contains(id)
                    || stage.lock.waiters.has(*id)
                    || stage.lock.lanes.iter().any(|lane| lane.is_acting(*id))
            };
            prop_assert!(tasks.iter().all(is_known), "a task is lost: {:?}", stage.lock);
            if tasks.is_empty() && held.is_none() {
                stage.tell(|lock, env, out| lock.release_unused(env, out));
                prop_assert!(stage.is_unused(), "something is left: {:?}", stage.lock);
            }
        }
    }
}
