//! A lock that is given away keeps its promises with all parts of its rule, and without any one of them a promise breaks.

use model::scenarios::broken;
use model::tickets::{Rule, Tickets};
use stateright::{Checker, HasDiscoveries, Model};

const SEARCHES: [(u8, u8); 2] = [(2, 0), (1, 1)];

#[test]
fn with_all_rules_every_promise_holds() {
    for (repeats, crashes) in SEARCHES {
        let checker = Tickets { repeats, crashes, without: None }.checker().spawn_bfs().join();
        println!("{repeats} repeats, {crashes} crashes: {} states", checker.unique_state_count());
        assert_eq!(broken(&checker), Vec::<&str>::new());
        assert!(checker.discovery("a lock is adopted after a lost answer").is_some());
        assert!(checker.discovery("the next one gets the lock").is_some());
    }
}

#[test]
fn without_any_one_rule_a_promise_breaks() {
    for rule in Rule::ALL {
        let is_broken = SEARCHES.iter().any(|&(repeats, crashes)| {
            let tickets = Tickets { repeats, crashes, without: Some(rule) };
            let checker = tickets.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
            println!("without {rule:?}: {:?}", broken(&checker));
            !broken(&checker).is_empty()
        });
        assert!(is_broken, "without {rule:?} nothing breaks");
    }
}
