//! With all its rules the protocol keeps its promises, in every order of steps within the bounds of each search.
//!
//! A search ends because there is nothing left to find, not because of a limit.

use model::scenarios::{self, EXHAUSTED};
use stateright::{Checker, Model};

fn exhaust(name: &str) {
    let Some(protocol) = scenarios::exhausted(name) else { unreachable!("{name} is no search") };
    let checker = protocol.checker().spawn_bfs().join();
    println!("{name}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    assert_eq!(scenarios::broken(&checker), Vec::<&str>::new());
    if checker.model().is_contended() {
        assert!(checker.discovery("a lease passes on between processes").is_some(), "nothing happens in this model");
    }
}

macro_rules! exhausted {
    ($($test:ident: $name:literal;)+) => {
        $(#[test]
        fn $test() {
            exhaust($name);
        })+

        #[test]
        fn every_search_has_its_test() {
            assert_eq!([$($name),+], EXHAUSTED);
        }
    };
}

exhausted! {
    promises_hold_among_three_processes: "three processes";
    promises_hold_with_two_tasks_each: "two tasks each";
    promises_hold_when_all_come_again: "three rounds";
    promises_hold_under_pauses_and_a_fast_clock: "pauses";
    promises_hold_when_renewals_are_late: "late renewals";
    promises_hold_when_connections_break: "broken connections";
    promises_hold_among_three_when_a_connection_breaks: "a broken connection among three";
    promises_hold_when_processes_crash: "crashes";
    promises_hold_when_time_is_up: "timeouts";
    promises_hold_when_acquires_are_cancelled: "cancelled";
    promises_hold_when_a_shutdown_ends_holds: "shutdown";
    promises_hold_when_a_lock_is_released_by_force: "released by force";
    promises_hold_for_nested_bodies: "nested";
    promises_hold_when_the_server_stands_still_inside_scripts: "slow scripts";
    promises_hold_when_tasks_come_late: "late tasks";
    promises_hold_when_tasks_of_one_process_come_late: "late tasks of one process";
    promises_hold_when_a_task_comes_late_and_a_connection_breaks: "a late task and a broken connection";
    promises_hold_when_a_node_of_a_cluster_counts_nobody: "uncounted";
    promises_hold_when_leases_linger: "lingering";
    promises_hold_when_leases_linger_and_a_connection_breaks: "lingering and a broken connection";
    promises_hold_when_leases_linger_and_a_process_crashes: "lingering and a crash";
    promises_hold_when_locks_are_deleted: "deleted without a script";
    promises_hold_when_locks_are_deleted_over_a_broken_connection: "deleted over a broken connection";
    promises_hold_when_locks_are_deleted_by_a_process_that_crashes: "deleted by a process that crashes";
}

/// So that a rule's test finds what the rule is for, and not what is broken anyway.
#[test]
fn promises_hold_where_the_rules_are_shown() {
    for (number, rule) in model::Rule::ALL {
        let protocol = model::Protocol { without: None, ..scenarios::shown(rule) };
        // The largest of them, which the tests above come near.
        if matches!(number, "6" | "7b" | "16" | "19") {
            continue;
        }
        let checker = protocol.checker().spawn_bfs().join();
        println!("rule {number}: {} states", checker.unique_state_count());
        assert_eq!(scenarios::broken(&checker), Vec::<&str>::new(), "rule {number}");
    }
}
