//! A hold ends, or is lost.

use super::*;

#[test]
fn a_lease_that_nobody_here_waits_for_is_released() {
    let mut stage = Stage::new();
    let id = stage.hold(&request());
    let token = stage.token();
    let Ending::Free(release) = stage.end(id) else { panic!("nobody waits") };
    assert!(release.token == token && release.is_lone() && stage.is_unused());
}

/// Rule L4: a streak of hand-overs is bounded. Guards dropped while no task waits here count too, if the next task takes the lease over
/// before it is released.
#[test]
fn a_streak_of_hand_overs_ends_once_another_process_waits() {
    for is_dropped in [false, true] {
        let mut stage = Stage::new();
        let mut id = stage.hold(&request());
        stage.contend();
        let mut streak = 0;
        loop {
            let next = if is_dropped { None } else { Some(stage.wait(&request())) };
            let ending = stage.end_part(id, 0, !is_dropped);
            if !matches!(ending, Ending::Kept) {
                assert!(matches!(ending, Ending::Free(_)), "{ending:?}");
                break;
            }
            id = next.unwrap_or_else(|| stage.enter_first(&request()));
            assert!(stage.takes(id, &request()));
            streak += 1;
        }
        assert_eq!(streak, 64);
    }
}

/// Rule L1: the whole lease ends.
#[test]
fn a_hold_that_outlived_its_deadline_hands_nothing_over() {
    let mut stage = Stage::new();
    let id = stage.hold(&ResolvedRequest { renew: false, ..request() });
    stage.wait(&request());
    stage.let_pass(CLAIM);
    assert!(matches!(stage.end(id), Ending::Lost(Some(_))), "the store may still have it");
    assert!(stage.lock.leases().next().is_none());
}

#[test]
fn the_last_of_several_readers_ends_their_hold() {
    for (bug, is_joint) in [(None, true), (Some(Mutant::FirstReaderEndsHold), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::sharing(Some(Share::READ));
        let id = stage.hold(&reader());
        assert!(matches!(stage.enter(&reader()), Entered::Joined(Started { member: 2, .. })));
        assert_eq!(matches!(stage.end_part(id, 1, true), Ending::Kept), is_joint, "{bug:?}");
        assert_eq!(matches!(stage.end_part(id, 2, true), Ending::Free(_)), is_joint, "{bug:?}");
    }
}

/// Otherwise a late task could mistake the token for one that was given up, just before the release is sent.
#[test]
fn a_token_is_known_as_being_released_when_its_lease_is_gone() {
    for is_queued in [true, false] {
        let mut stage = Stage::new();
        let id = stage.hold(&request());
        let token = stage.token();
        if is_queued {
            stage.lock.any_lease().queued = true;
        }
        assert!(matches!(stage.end(id), Ending::Free(_)));
        assert_eq!(stage.lock.leave_to_user(&token), is_queued);
    }
}

/// Rule 13: the release waits for the body.
#[test]
fn a_lock_that_was_lost_is_released_when_its_body_is_dropped() {
    for (bug, waits) in [(None, true), (Some(Mutant::ReleasedBeforeBody), false)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = Stage::new();
        let id = stage.hold(&ResolvedRequest { body: true, ..request() });
        let next = stage.wait(&request());
        let token = stage.token();
        stage.lose();
        assert_eq!(stage.effects.releases.is_empty(), waits, "{bug:?}");
        assert!(stage.effects.wakes && !stage.lock.is_held(), "the body is woken");
        assert!(stage.woken() == [next], "the next task asks");
        assert!(matches!(stage.end(id), Ending::Lost(None)));
        assert_eq!(stage.lock.end_use(&token).is_some(), waits, "{bug:?}");
    }
}

/// The server executed a renewal after a late copy of the claim had created the lease again.
#[test]
fn a_hold_whose_deadline_has_passed_does_not_come_back() {
    let mut stage = Stage::new();
    stage.hold(&request());
    let Some(Action::Renew(renewal)) = stage.look(Trigger::Verify) else { panic!("it is verified") };
    stage.let_pass(CLAIM);
    let action = stage.renewed(&renewal, stage.now(), Some(stage.until(LEASE)));
    assert!(matches!(action, Some(Action::Lost(_, LossReason::Deadline))), "{action:?}");
}
