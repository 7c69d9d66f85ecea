//! A task waits.

use super::*;

#[test]
fn tasks_are_called_in_the_order_in_which_they_came() {
    let mut stage = Stage::new();
    let first = stage.hold(&request());
    let waiting = [(); 3].map(|()| stage.wait(&request()));
    let mut before = first;
    for id in waiting {
        assert!(matches!(stage.end(before), Ending::Kept));
        assert!(matches!(stage.pass(before), Passed::To(_)));
        assert_eq!(stage.called(), [id]);
        assert!(stage.start(id, &request()), "without a word to the store");
        before = id;
    }
    assert!(matches!(stage.end(before), Ending::Free(_)));
}

/// Rule 25: who replaces the holder comes in front. The task that asked keeps its place.
#[test]
fn who_comes_in_front_of_all_others_is_not_overtaken_by_the_task_that_asked() {
    for (bug, is_first) in [(None, true), (Some(Mutant::SeizedTurnIsTakenBack), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let asking = stage.enter_first(&request());
        stage.ask(asking, &request());
        let seized = stage.tell(|lock, env, out| lock.seize(env, env.now(), out));
        let Seized::Turn(newest, withdrawal) = seized else { panic!("there is no lease") };
        assert!(withdrawal.is_some() && stage.effects.takes_turn, "nobody waits for what was asked");
        stage.ask(newest, &request());
        let back = stage.come_late(asking, &request());
        assert!(matches!(back, Rejoined::Waits { .. }), "{back:?}");
        assert_eq!(newest < asking, is_first, "{bug:?}");
    }
}

/// Each hold needs a token of its own (rule L2), and the next ones come without a command.
#[test]
fn the_task_that_asks_draws_fencing_tokens_for_those_who_wait() {
    let mut stage = Stage::new();
    let fenced = ResolvedRequest { fenced: true, ..request() };
    let first = stage.enter_first(&fenced);
    stage.wait(&fenced);
    stage.wait(&request());
    stage.wait(&fenced);
    assert_eq!(stage.ask(first, &fenced).fences, 3);
}
