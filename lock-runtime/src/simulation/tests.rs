use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use history::timeline::draw;

use super::seeded::{ALL, BUDGET};
use super::world::{Outcome, run};

fn explain(seed: u64, outcome: &Outcome) -> String {
    let found: Vec<_> = outcome.violations.iter().take(3).map(|violation| draw(&outcome.history, violation)).collect();
    format!("seed {seed}: {} violations\n{:?}\n{}", outcome.violations.len(), outcome.plan, found.join("\n"))
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
    for seed in 0..5 {
        assert_eq!(run(seed, None).history.events, run(seed, None).history.events, "seed {seed}");
    }
}

/// `MUTANT=part-of-a-name,…` for some alone, `SEEDS=20000` for more worlds than usual.
#[test]
fn each_seeded_bug_is_caught_by_its_check() {
    let only = std::env::var("MUTANT").unwrap_or_default();
    let wanted: Vec<_> = ALL.iter().filter(|seeded| only.split(',').any(|part| seeded.name.contains(part))).collect();
    let (next, survivors) = (Mutex::new(wanted.into_iter()), Mutex::new(Vec::new()));
    on_all_processors(|| {
        while let Some(seeded) = { next.lock().unwrap().next() } {
            let mut others = BTreeMap::new();
            let mut by = None;
            for seed in 0..seeds(BUDGET).end {
                let outcome = run(seed, Some(seeded.bug));
                for violation in &outcome.violations {
                    others.entry(violation.check).or_insert(seed);
                }
                if outcome.violations.iter().any(|violation| violation.check == seeded.check) {
                    by = Some(seed);
                    break;
                }
            }
            println!("{}: {:?} by {}, others {others:?}", seeded.name, by.map(|seed| seed + 1), seeded.check);
            if by.is_none() {
                survivors.lock().unwrap().push(seeded.name);
            }
        }
    });
    assert!(survivors.lock().unwrap().is_empty(), "survivors: {survivors:?}");
}
