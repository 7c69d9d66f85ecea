use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use history::timeline::draw;
use server_model::ModelServer;
use tokio::time::{Instant, timeout};

use super::network::Network;
use super::process::connect;
use super::seeded::{ALL, BUDGET, Seeded};
use super::time::Simulated;
use super::world::{Outcome, Plan, run};
use crate::LockError;

fn explain(seed: u64, outcome: &Outcome) -> String {
    let found: Vec<_> = outcome.violations.iter().take(3).map(|violation| draw(&outcome.history, violation)).collect();
    format!("seed {seed}: {} violations\n{:?}\n{}", outcome.violations.len(), outcome.plan, found.join("\n"))
}

/// `SEED=7 EVENTS=1`: all that happened.
fn dump(outcome: &Outcome) {
    if std::env::var_os("EVENTS").is_some() {
        for event in &outcome.history.events {
            eprintln!("{:>12} {}/{} {:?}", event.t / 1000, event.process, event.task, event.what);
        }
    }
}

/// `SEEDS=20000` for more, `SEED=7` for one alone.
fn seeds(usually: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    number("SEED").map_or(0..number("SEEDS").unwrap_or(usually), |seed: u64| seed..seed + 1)
}

fn on_all_processors(work: impl Fn() + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&work))));
}

#[test]
fn every_promise_is_kept_in_every_world() {
    let (next, count) = (Mutex::new(seeds(500)), Mutex::new((0, 0, Vec::new())));
    on_all_processors(|| {
        while let Some(seed) = { next.lock().unwrap().next() } {
            let outcome = run(seed, None);
            dump(&outcome);
            let (grants, faults, failed) = &mut *count.lock().unwrap();
            *grants += outcome.grants();
            *faults += outcome.faults();
            if !outcome.violations.is_empty() {
                eprintln!("{}", explain(seed, &outcome));
                failed.push(seed);
            }
        }
    });
    let (grants, faults, failed) = &*count.lock().unwrap();
    println!("{:?}: {grants} grants, {faults} faults", seeds(500));
    assert!(failed.is_empty(), "seeds {failed:?}");
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 0..20 {
        let (one, other) = (run(seed, None).history.events, run(seed, None).history.events);
        let difference = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!((one.len(), difference), (other.len(), None), "seed {seed}");
    }
}

/// `MUTANT=part-of-a-name,…` for some alone, `SEEDS=20000` for more worlds than usual.
#[test]
fn each_seeded_bug_is_caught_by_its_check() {
    let only = std::env::var("MUTANT").unwrap_or_default();
    let meant = |seeded: &&Seeded| only.split(',').any(|part| seeded.name.contains(part));
    let (next, survivors) = (Mutex::new(ALL.iter().filter(meant)), Mutex::new(Vec::new()));
    on_all_processors(|| {
        while let Some(seeded) = { next.lock().unwrap().next() } {
            let mut others = BTreeSet::new();
            let limit = seeds(BUDGET);
            let fitting = (limit.start..).filter(|seed| (seeded.shows_in)(&Plan::of(&mut Rng::with_seed(*seed))));
            let caught = fitting.take(usize::try_from(limit.end - limit.start).unwrap()).find(|seed| {
                let found = run(*seed, Some(seeded.bug)).violations;
                others.extend(found.iter().map(|violation| violation.check));
                others.contains(seeded.check)
            });
            match caught {
                Some(seed) => println!("{}: world {seed}, {others:?}", seeded.name),
                None => survivors.lock().unwrap().push((seeded.name, seeded.check, others)),
            }
        }
    });
    let survivors = &*survivors.lock().unwrap();
    assert!(survivors.is_empty(), "bugs that their checks did not find, and what other checks did: {survivors:#?}");
}

#[test]
fn each_patch_changes_a_script() {
    let scripts = [
        include_str!("../store/redis/scripts/ask.lua"),
        include_str!("../store/redis/scripts/free.lua"),
        include_str!("../store/redis/scripts/queue.lua"),
        include_str!("../store/redis/scripts/release.lua"),
        include_str!("../store/redis/scripts/renew.lua"),
    ];
    for (from, _) in ALL.iter().flat_map(|seeded| seeded.bug.patches()) {
        assert!(scripts.iter().any(|script| script.contains(from)), "{from}");
    }
}

#[test]
fn the_docs_list_each_seeded_bug_and_its_check() {
    let docs = include_str!("../../../docs/faults.md");
    let (_, section) = docs.split_once("## Bugs on purpose").unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let wanted: Vec<_> = ALL.iter().map(|seeded| format!("| {} | {} |", seeded.name, seeded.check)).collect();
    assert_eq!(rows, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_at_its_deadline_while_its_renewal_is_on_its_way() {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let lease = Duration::from_millis(600);
    let guard = connect(&network, "p").lock("k", &0).expire(lease).renew(true).acquire().await.unwrap();
    network.freeze(lease * 9);
    let end = Instant::now() + guard.remaining();
    // A renewal is on its way when the lease ends, and nothing else wakes this task.
    guard.lost().await;
    assert!(Instant::now() < end + Duration::from_millis(3), "{:?} late", end.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_single_try_that_only_siblings_stood_before_is_told_of_a_silent_server() {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(Duration::from_secs(9));
    let siblings = async {
        loop {
            // Each has the turn at once, asks, and is gone before there could be an answer.
            let _ = timeout(Duration::from_millis(10), locks.lock("k", &0).try_acquire()).await;
        }
    };
    let tried = tokio::select! {
        biased;
        () = siblings => None,
        tried = async { locks.lock("k", &0).try_acquire().await } => Some(tried),
    };
    assert!(matches!(tried, Some(Err(LockError::Backend { .. }))), "{tried:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_try_has_its_turn_as_soon_as_the_sibling_before_it_is_gone() {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(Duration::from_millis(5));
    let begin = Instant::now();
    let sibling = async {
        let _ = timeout(Duration::from_millis(1), locks.lock("k", &0).try_acquire()).await;
    };
    let ((), tried) = tokio::join!(biased; sibling, async { locks.lock("k", &0).try_acquire().await });
    assert!(matches!(tried, Ok(Some(_))), "{tried:?}");
    assert!(begin.elapsed() < Duration::from_millis(20), "{:?}", begin.elapsed());
}
