//! Another client has changed the key of a lease.

use super::*;
use crate::timing::ALARM_AFTER;

/// A hold whose last renewal has armed the alarm.
fn armed() -> Stage {
    let mut stage = Stage::new();
    stage.hold(&request());
    stage.let_pass(UNCONFIRMED_FOR);
    let Some(Action::Renew(confirmation)) = stage.look(Trigger::Tick) else { panic!("it is confirmed") };
    assert!(!confirmation.arms, "a hold that is not confirmed may end soon");
    stage.renewed(&confirmation, stage.now(), Some(stage.until(LEASE)));
    stage.let_pass(ALARM_AFTER);
    let Some(Action::Renew(renewal)) = stage.look(Trigger::Timer) else { panic!("it has to arm its alarm") };
    assert!(renewal.arms);
    stage.renewed(&renewal, stage.now(), Some(stage.until(LEASE)));
    stage
}

#[test]
fn one_alarm_causes_one_verification() {
    let mut stage = armed();
    assert!(stage.lock.on_alarm());
    assert!(!stage.lock.on_alarm(), "it was not armed again");
    assert!(matches!(stage.look(Trigger::Verify), Some(Action::Renew(_))));
}

/// Otherwise a key that keeps being changed would be verified all the time.
#[test]
fn a_verification_arms_no_alarm() {
    for (bug, arms) in [(None, false), (Some(Mutant::VerificationArms), true)] {
        let _seeded = Seeded::begin(bug);
        let mut stage = armed();
        stage.lock.on_alarm();
        let Some(Action::Renew(renewal)) = stage.look(Trigger::Verify) else { panic!("it is verified") };
        assert_eq!(renewal.arms, arms, "{bug:?}");
    }
}

#[test]
fn a_lock_without_a_lease_has_no_alarm() {
    let mut stage = Stage::new();
    assert!(!stage.lock.on_alarm());
    let id = stage.enter_first(&request());
    stage.ask(id, &request());
    assert!(!stage.lock.on_alarm());
}
