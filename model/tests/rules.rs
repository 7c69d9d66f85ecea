//! Without any one of its rules the protocol breaks a promise, and the search finds out how.

use model::{Rule, scenarios};
use stateright::{Checker, HasDiscoveries, Model};

/// Takes the rule away; the promise of this number has to break.
fn removing_is_found(rule: Rule, promise: &str) {
    let checker = scenarios::shown(rule).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken = checker.discoveries();
    let found = broken.iter().find(|(name, _)| name.starts_with(promise));
    assert!(found.is_some(), "without {rule:?} promise {promise} still holds");
}

macro_rules! removed {
    ($($test:ident: $rule:ident breaks $promise:literal;)+) => {
        $(#[test]
        fn $test() {
            removing_is_found(Rule::$rule, $promise);
        })+

        #[test]
        fn every_rule_has_its_test() {
            assert_eq!([$(Rule::$rule),+].as_slice(), Rule::ALL.map(|(_, rule)| rule).as_slice());
        }
    };
}

removed! {
    removing_rule_1_is_found: TakeBack breaks "5";
    removing_rule_2_is_found: NotAfter breaks "5";
    removing_rule_3_is_found: CanBeTold breaks "4";
    removing_rule_4_is_found: QueueFirst breaks "6";
    removing_rule_5_is_found: AskAgain breaks "4";
    removing_rule_5b_is_found: NearIsTold breaks "4";
    removing_rule_6_is_found: OnlyLonger breaks "1";
    removing_rule_7_is_found: FromSending breaks "1";
    removing_rule_7b_is_found: OneReading breaks "1";
    removing_rule_8_is_found: WriteBack breaks "2";
    removing_rule_10_is_found: OwnersToken breaks "3";
    removing_rule_11_is_found: Claims breaks "5";
    removing_rule_12_is_found: StrayGrants breaks "5";
    removing_rule_13_is_found: LookFirst breaks "8";
    removing_rule_14_is_found: DropFirst breaks "1";
    removing_rule_15_is_found: Drift breaks "1";
    removing_rule_16_is_found: DatedGrants breaks "1";
    removing_rule_16b_is_found: CountedGrants breaks "1";
    removing_rule_17_is_found: LostIsNoStray breaks "1";
    removing_rule_18_is_found: StreakOfDrops breaks "6";
    removing_rule_19_is_found: FreshFences breaks "2";
    removing_rule_20_is_found: NestedFences breaks "2";
    removing_rule_21_is_found: StaysForced breaks "1";
    removing_rule_26_is_found: LookBehind breaks "4";
    removing_rule_l1_is_found: TimeLeft breaks "8";
    removing_rule_l2_is_found: OwnFence breaks "2";
    removing_rule_l3_is_found: NewToken breaks "3";
    removing_rule_l4_is_found: Streak breaks "6";
    removing_rule_l5_is_found: NobodyLeft breaks "4";
    removing_rule_l6_is_found: WholeLease breaks "3";
    removing_rule_l7_is_found: LateTurn breaks "4";
    removing_rule_l7b_is_found: StaleTurn breaks "8";
    removing_rule_l7c_is_found: UnreadAnswer breaks "4";
    removing_rule_l9_is_found: LingerYields breaks "4";
}
