//! The store pushes a message: a grant, that another process waits, or that the lock was taken by force.

use super::*;

/// A task in the store's queue.
fn queued() -> (Stage, u64, Ask) {
    let mut stage = Stage::new();
    let id = stage.enter_first(&request());
    let ask = stage.ask(id, &request());
    stage.refuse(&ask);
    (stage, id, ask)
}

/// Rule 16: a push is a hint.
#[test]
fn a_pushed_grant_that_nothing_dates_is_confirmed_before_it_is_used() {
    let (mut stage, id, ask) = queued();
    assert!(stage.push(&ask.token));
    let step = stage.step(id, &request());
    assert!(matches!(&step, Step::Confirm(renewal) if renewal.token == ask.token), "{step:?}");
}

#[test]
fn a_grant_belongs_to_the_user_of_its_token_and_is_a_stray_without_one() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let [given_up, ending] = [(); 2].map(|()| stage.env.next_token(stage.env.now(), false, None));
    stage.lock.note_ending(ending.clone(), 0, None);
    let own = stage.token();
    assert!(stage.push(&own), "it has the lease");
    assert!(!stage.push(&given_up), "nobody uses it");
    assert!(stage.push(&ending), "a task is about to release it");
    assert!(stage.lock.end_use(&ending).is_some_and(|ended| ended.may_be_granted_again));
}

/// Rule 13: the release waits for the body.
#[test]
fn a_late_grant_for_a_body_whose_hold_was_lost_is_no_stray() {
    for (bug, is_left) in [(None, true), (Some(Mutant::LostIsStray), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        stage.hold(&ResolvedRequest { body: true, ..request() });
        let token = stage.token();
        stage.lose();
        assert_eq!(stage.push(&token), is_left, "{bug:?}");
    }
}

/// Rule L4: from then on the streak of hand-overs is bounded. Nothing is sent for it.
#[test]
fn a_hold_goes_on_when_a_process_waits_and_a_lingering_lease_does_not() {
    let mut stage = Stage::new();
    let lingers = ResolvedRequest { linger_cs: 50, ..request() };
    let id = stage.hold(&lingers);
    stage.contend();
    assert!(stage.lock.is_held());
    assert!(matches!(stage.end(id), Ending::Free(_)), "it does not linger while another process waits");
    let id = stage.hold(&lingers);
    assert!(matches!(stage.end(id), Ending::Kept));
    assert!(stage.tell(|lock, env, out| lock.yield_lingering(env, out)).is_some());
}

/// Rule 16: a message is a hint. The hold goes on until the store has been asked.
#[test]
fn a_message_of_a_force_ends_no_hold_by_itself() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let token = stage.token();
    let nobodys = stage.env.next_token(stage.env.now(), false, None);
    assert_eq!(stage.tell(|lock, env, out| lock.on_forced(&token, env, out)), Some(true));
    assert!(stage.lock.is_held() && stage.lock.was_forced(&token));
    assert_eq!(stage.tell(|lock, env, out| lock.on_forced(&nobodys, env, out)), None);
}

/// Then its place in the queue is in doubt.
#[test]
fn a_task_that_waits_in_the_queue_asks_again_when_its_connection_broke() {
    let (mut stage, id, ask) = queued();
    assert!(matches!(stage.step(id, &request()), Step::Wait(_)));
    stage.tell(|lock, _, _| lock.on_interruption());
    assert_eq!(stage.woken(), [id]);
    assert_eq!(stage.ask(id, &request()).token, ask.token, "under the same token: it keeps its place");
}
