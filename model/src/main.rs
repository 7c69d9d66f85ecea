//! Searches further than the tests do: `cargo run --release -p model -- --depth 20`.
//!
//! - no option: the searches that CI exhausts
//! - `--only NAME`: one of these searches
//! - `--depth N`: three processes with two tasks each and a fault of every kind, in sequences of up to N - 1 steps
//! - `--without RULE` (the rule's number in docs/protocol.md): the shortest way to break a promise without that rule
//! - `--with RULE`: the same search with it
//! - `--list`: the rules

use std::fmt::Debug;
use std::hash::Hash;
use std::process::ExitCode;
use std::time::Instant;

use model::scenarios::{self, EXHAUSTED, FENCED, RENEWED};
use model::{Faults, Protocol, Rule, sharing};
use stateright::{Checker, HasDiscoveries, Model, Path};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let all_well = match words.as_slice() {
        [] => {
            EXHAUSTED.iter().all(|name| scenarios::exhausted(name).is_some_and(|of| search(name, of, None)))
                && search_shared(None)
        }
        ["--only", name] => match scenarios::exhausted(name) {
            Some(protocol) => search(name, protocol, None),
            None => return usage(),
        },
        ["--depth", depth] => match depth.parse() {
            Ok(depth) => search("everything", everything(), Some(depth)),
            Err(_) => return usage(),
        },
        ["--without", number] => match Rule::numbered(number) {
            // What breaks at the least depth is the shortest.
            Some(rule) => (2..100).all(|depth| search(number, scenarios::shown(rule), Some(depth))),
            None => match sharing::Rule::numbered(number) {
                Some(rule) => search_shared(Some(rule)),
                None => return usage(),
            },
        },
        ["--with", number] => match Rule::numbered(number) {
            Some(rule) => search(number, Protocol { without: None, ..scenarios::shown(rule) }, None),
            None => return usage(),
        },
        ["--list"] => {
            for (number, rule) in Rule::ALL {
                println!("{number:>3}  {rule:?}");
            }
            for (number, rule) in sharing::Rule::ALL {
                println!("{number:>3}  {rule:?}");
            }
            true
        }
        _ => return usage(),
    };
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("usage: model [--only NAME | --depth N | --without RULE | --with RULE | --list]");
    ExitCode::from(2)
}

fn everything() -> Protocol {
    let faults = Faults {
        lags: 2,
        early_ends: 1,
        lost_pushes: 1,
        breaks: 1,
        crashes: 1,
        vanishes: 1,
        cancels: 1,
        shutdowns: 1,
        // A release by force and a long lag break promise 1: the holder is told too late.
        forces: 0,
        stalls: 1,
        late_tasks: 1,
        nested: 1,
        lingers: 1,
        uncounted: 1,
    };
    Protocol::of(3, &[RENEWED, FENCED], faults).rounds(2)
}

/// The searches of shared leases, up to the first that breaks a promise.
fn search_shared(without: Option<sharing::Rule>) -> bool {
    sharing::searches().into_iter().all(|(name, model)| search(name, sharing::Sharing { without, ..model }, None))
}

/// Searches, tells what was found; `false` when a promise is broken.
fn search<M>(name: &str, model: M, depth: Option<usize>) -> bool
where
    M: Model<State: Clone + PartialEq + Debug + Hash + Send + Sync, Action: Clone + PartialEq + Debug + Send + Sync>
        + Send
        + Sync
        + 'static,
{
    let start = Instant::now();
    // With more threads a search that ends at a depth can miss states.
    let threads = if depth.is_some() { 1 } else { 2 };
    let mut checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(depth) = depth {
        checker = checker.target_max_depth(depth);
    }
    let checker = checker.spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} unique states, {depth} deep, in {:.1} s", start.elapsed().as_secs_f32());
    let broken = scenarios::broken(&checker);
    for property in &broken {
        println!("  broken: {property}");
        for action in checker.discovery(property).into_iter().flat_map(Path::into_actions) {
            println!("    {action:?}");
        }
    }
    broken.is_empty()
}
