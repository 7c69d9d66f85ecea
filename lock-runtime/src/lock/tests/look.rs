//! The keeper checks a lock: at each tick, when its timer fires, and when the store may have forgotten the lease. Also how the answer to
//! its renewal is handled.

use super::*;

impl Stage {
    fn renewal(&mut self, trigger: Trigger) -> Renewal {
        match self.look(trigger) {
            Some(Action::Renew(renewal)) => renewal,
            other => panic!("{other:?}"),
        }
    }
}

/// Most holds of this age end soon.
#[test]
fn a_hold_is_confirmed_for_its_whole_lease_when_it_is_not_young_any_more() {
    for (bug, is_confirmed) in [(None, true), (Some(Mutant::YoungNeverConfirmed), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        stage.hold(&request());
        stage.let_pass(UNCONFIRMED_FOR * 9 / 10);
        assert!(stage.look(Trigger::Tick).is_none() && stage.lock.is_tracked());
        stage.let_pass(UNCONFIRMED_FOR);
        let action = stage.look(Trigger::Tick);
        assert_eq!(matches!(&action, Some(Action::Renew(renewal)) if renewal.lease >= LEASE), is_confirmed, "{bug:?}");
    }
}

#[test]
fn a_hold_is_renewed_at_a_third_of_its_lease() {
    let lease = Duration::from_secs(3);
    for (bug, is_renewed) in [(None, true), (Some(Mutant::KeeperNeverRenews), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        stage.hold(&ResolvedRequest { expire: lease, ..request() });
        stage.let_pass(UNCONFIRMED_FOR);
        let renewal = stage.renewal(Trigger::Tick);
        stage.renewed(&renewal, stage.now(), Some(stage.until(lease)));
        assert_eq!(stage.looks_in() == Some(lease / 3), is_renewed, "{bug:?}");
        stage.let_pass(lease / 3);
        assert_eq!(matches!(stage.look(Trigger::Timer), Some(Action::Renew(_))), is_renewed, "{bug:?}");
    }
}

#[test]
fn a_hold_is_lost_at_its_deadline() {
    for (bug, is_lost) in [(None, true), (Some(Mutant::LateHandOver), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        stage.hold(&ResolvedRequest { expire: Duration::from_secs(1), renew: false, ..request() });
        stage.let_pass(CLAIM);
        let action = stage.look(Trigger::Tick);
        assert_eq!(matches!(action, Some(Action::Lost(_, LossReason::Deadline))), is_lost, "{bug:?}: {action:?}");
    }
}

#[test]
fn a_renewal_without_an_answer_is_sent_again_ever_more_slowly_until_the_hold_ends() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let renewal = stage.renewal(Trigger::Verify);
    stage.renewed(&renewal, stage.now(), Some(stage.until(LEASE)));
    for millis in [50, 100, 200, 400, 800, 800] {
        assert!(stage.renewed(&renewal, stage.now(), None).is_none());
        assert_eq!(stage.looks_in(), Some(Duration::from_millis(millis)));
        stage.let_pass(Duration::from_millis(millis));
        stage.renewal(Trigger::Timer);
    }
    stage.let_pass(LEASE);
    assert!(matches!(stage.renewed(&renewal, stage.now(), None), Some(Action::Lost(..))));
}

/// Two servers break one after the other. The renewal may have reached the second server before it broke.
#[test]
fn a_store_that_may_forget_during_a_renewal_is_asked_again() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let renewal = stage.renewal(Trigger::Verify);
    assert!(stage.look(Trigger::Verify).is_none(), "one is on its way");
    let again = stage.renewed(&renewal, stage.now(), Some(stage.until(LEASE)));
    let Some(Action::Renew(again)) = again else { panic!("it is doubtful: {again:?}") };
    assert!(stage.renewed(&again, stage.now(), Some(stage.until(LEASE))).is_none());
}

/// The keeper decides on a renewal for one hold. Before it is sent, the lease is handed over to a hold with a longer lease.
#[test]
fn a_renewal_for_one_hold_does_not_confirm_the_longer_lease_of_the_next() {
    for renew in [true, false] {
        let mut stage = Stage::new();
        let short = ResolvedRequest { expire: CLAIM * 2, renew, ..request() };
        let long = ResolvedRequest { renew, ..request() };
        let first = stage.hold(&short);
        let next = stage.wait(&long);
        let renewal = stage.renewal(Trigger::Verify);
        stage.end(first);
        assert!(stage.takes(next, &long));
        assert!(
            stage.look(Trigger::Tick).is_none() && stage.lock.is_tracked(),
            "that renewal is on its way, and the hold is young"
        );
        stage.renewed(&renewal, stage.now(), Some(stage.until(short.expire)));
        stage.let_pass(UNCONFIRMED_FOR);
        assert!(stage.renewal(Trigger::Tick).lease > LEASE / 2);
    }
}

/// A slow renewal finds the lease gone. By then a repeated ask was granted the token once more, and the lease was confirmed.
#[test]
fn the_refusal_of_an_older_renewal_is_verified_when_the_lease_was_confirmed_meanwhile() {
    for (refusal, bug, is_lost) in [
        (Renewed::NotOwned, None, false),
        (Renewed::Forced, None, false),
        (Renewed::NotOwned, Some(Mutant::LateRefusalCounts), true),
    ] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        stage.hold(&request());
        let (slow, renewal) = (stage.now(), stage.renewal(Trigger::Verify));
        stage.let_pass(UNCONFIRMED_FOR);
        stage.renewed(&renewal, stage.now(), Some(stage.until(LEASE)));
        let action = stage.renewed(&renewal, slow, Some(refusal));
        assert_eq!(matches!(action, Some(Action::Lost(..))), is_lost, "{action:?}");
        stage.let_pass(MOMENT);
        let action = stage.renewed(&renewal, stage.now(), Some(Renewed::NotOwned));
        assert!(matches!(action, Some(Action::Lost(..))), "the later renewal counts: {action:?}");
    }
}

/// Rule L7: its task may not be polled, and the tasks behind it here would have to wait too.
#[test]
fn an_answer_that_its_task_does_not_read_is_asked_for_again() {
    for (bug, is_repeated) in [(None, true), (Some(Mutant::UnreadNotRepeated), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let id = stage.enter_first(&request());
        let ask = stage.ask(id, &request());
        stage.let_pass(FREE_PATIENCE);
        assert!(stage.look(Trigger::Tick).is_none() && stage.lock.is_tracked());
        stage.let_pass(UNCONFIRMED_FOR);
        let action = stage.look(Trigger::Tick);
        assert_eq!(matches!(&action, Some(Action::Ask(again)) if again.token == ask.token), is_repeated, "{bug:?}");
    }
}

/// An ask that can't be sent learns nothing, and would have to be withdrawn anyway.
#[test]
fn nothing_is_asked_for_again_where_there_is_no_connection() {
    for (bug, connects) in [(None, true), (Some(Mutant::RepeatedCutOff), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let id = stage.enter_first(&request());
        stage.ask(id, &request());
        stage.env.is_cut_off.set(true);
        stage.let_pass(FREE_PATIENCE + MOMENT);
        assert_eq!(matches!(stage.look(Trigger::Tick), Some(Action::Connect)), connects, "{bug:?}");
    }
}

/// Rule S5: a waiter asks again every 0.9 s, and each ask notifies the readers.
#[test]
fn readers_wait_for_others_only_while_the_others_repeat_their_asks() {
    for (bug, are_gone) in [(None, true), (Some(Mutant::WaiterNeverGone), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::sharing(Some(Share::READ));
        stage.hold(&reader());
        stage.let_pass(UNCONFIRMED_FOR);
        let renewal = stage.renewal(Trigger::Tick);
        stage.renewed(&renewal, stage.now(), Some(stage.until(LEASE)));
        stage.contend();
        let waiting = stage.wait(&reader());
        assert!(stage.lock.is_tracked(), "the keeper has to check when the others are gone");
        for _ in 0..3 {
            stage.look(Trigger::Tick);
            stage.let_pass(ASK_INTERVAL * 2);
            stage.look(Trigger::Timer);
            assert_eq!(stage.woken(), [0; 0]);
            stage.contend();
        }
        stage.let_pass(WAITERS_KNOWN_FOR);
        stage.look(Trigger::Timer);
        assert_eq!(stage.woken() == [waiting], are_gone, "{bug:?}");
        assert_eq!(matches!(stage.enter(&reader()), Entered::Joined(_)), are_gone, "{bug:?}");
    }
}
