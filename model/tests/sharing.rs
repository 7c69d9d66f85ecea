//! Shared leases keep their promises with all their rules, and without any one of them a promise breaks.

use model::scenarios::broken;
use model::sharing::{Rule, Sharing, searches};
use stateright::{Checker, HasDiscoveries, Model};

#[test]
fn with_all_rules_every_promise_holds() {
    for (name, sharing) in searches() {
        let checker = sharing.checker().spawn_bfs().join();
        println!("{name}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
        assert_eq!(broken(&checker), Vec::<&str>::new(), "{name}");
        assert!(checker.discovery("the lock is passed on by push").is_some(), "nothing happens in {name}");
        let lingers = checker.discovery("a hold begins on a lease that lingered").is_some();
        assert_eq!(lingers, name.starts_with("lingering"), "{name}");
    }
}

#[test]
fn without_any_one_rule_a_promise_breaks() {
    for (number, rule) in Rule::ALL {
        let is_broken = searches().into_iter().any(|(name, sharing)| {
            let sharing = Sharing { without: Some(rule), ..sharing };
            let checker = sharing.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
            let broken = broken(&checker);
            if !broken.is_empty() {
                println!("without {number}: {name}: {broken:?}");
            }
            !broken.is_empty()
        });
        assert!(is_broken, "without rule {number} nothing breaks");
    }
}
