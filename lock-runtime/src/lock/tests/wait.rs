//! A task waits.

use super::*;

#[test]
fn tasks_are_woken_in_the_order_in_which_they_came() {
    for (bug, is_woken) in [(None, true), (Some(Mutant::FreeLeaseUntold), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let first = stage.hold(&request());
        let waiting = [(); 3].map(|()| stage.wait(&request()));
        let mut before = first;
        for id in waiting {
            assert!(matches!(stage.end(before), Ending::Kept));
            assert_eq!(stage.woken() == [id], is_woken, "{bug:?}");
            assert!(stage.takes(id, &request()), "without a command to the store");
            before = id;
        }
        assert!(matches!(stage.end(before), Ending::Free(_)));
    }
}

/// Rule 25: a request that replaces the holder goes to the front. The task that asked keeps its place.
#[test]
fn a_task_in_front_of_all_others_is_not_overtaken_by_the_task_that_asked() {
    for (bug, is_first) in [(None, true), (Some(Mutant::NewestComesLast), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let newest = ResolvedRequest { on_busy: OnBusy::Replace, ..request() };
        let asking = stage.enter_first(&request());
        let ask = stage.ask(asking, &request());
        let id = stage.tell(|lock, env, out| lock.enter_in_front(env, out)).expect("there is no lease");
        assert_eq!(!stage.effects.withdrawals.is_empty() && stage.effects.is_overtaken, is_first, "{ask:?}");
        stage.entrants.push(id);
        if is_first {
            stage.ask(id, &newest);
            assert!(matches!(stage.step(asking, &request()), Step::Wait(_)));
        }
        assert_eq!(id < asking, is_first, "{bug:?}");
    }
}

/// Each hold needs its own token (rule L2), and the next holds start without a command.
#[test]
fn the_task_that_asks_draws_fencing_tokens_for_the_waiters() {
    let mut stage = Stage::new();
    let fenced = ResolvedRequest { fenced: true, ..request() };
    let first = stage.enter_first(&fenced);
    for request in [&fenced, &request(), &fenced] {
        let Entered::Waits(id) = stage.enter(request) else { panic!("another task is first") };
        stage.tell(|lock, _, _| lock.wait(id, request));
    }
    assert_eq!(stage.ask(first, &fenced).fences, 3);
}

/// It would find the same to do, wait again, and so on until its time to back off is over.
#[test]
fn a_task_that_backs_off_is_not_woken_for_what_another_task_left() {
    let permit = ResolvedRequest { share: Share::permit(2), timeout: LEASE, ..request() };
    let mut stage = Stage::sharing(permit.share);
    let [first, second] = [(); 2].map(|()| stage.enter_first(&permit));
    let [refused, failed] = [first, second].map(|id| stage.ask(id, &permit));
    let mut attempt = Attempt::new(&permit, Duration::from_secs(1), || stage.now());
    stage.refuse(&refused);
    // The first ask is to be repeated, and the second task does not read its answer.
    stage.tick_for(Duration::from_secs(9));
    let deadline = Deadline::new(stage.now(), CLAIM);
    let error = StoreError::no_answer();
    stage.tell(|lock, env, _| lock.on_failed_command(&mut attempt, error, deadline, env, env.now()));
    stage.woken();
    assert!(matches!(stage.step_of(first, &permit, &attempt), Step::Wait(_)), "{failed:?}");
    assert!(stage.woken().is_empty());
    assert!(stage.tick_for(ASK_INTERVAL) || stage.woken() == [first], "after that it is woken");
}
