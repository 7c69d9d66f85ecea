use std::sync::Mutex;

use history::timeline::draw;

use super::world::{Outcome, run};

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
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    number("SEED").map_or(0..number("SEEDS").unwrap_or(500), |seed: u64| seed..seed + 1)
}

#[test]
fn every_promise_is_kept_in_every_world() {
    let (next, count) = (Mutex::new(seeds()), Mutex::new((0, 0, Vec::new())));
    let work = || {
        while let Some(seed) = { next.lock().unwrap().next() } {
            let outcome = run(seed, |_| {});
            dump(&outcome);
            let (grants, faults, failed) = &mut *count.lock().unwrap();
            *grants += outcome.grants();
            *faults += outcome.faults();
            if !outcome.violations.is_empty() {
                eprintln!("{}", explain(seed, &outcome));
                failed.push(seed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (grants, faults, failed) = &*count.lock().unwrap();
    println!("{:?}: {grants} grants, {faults} faults", seeds());
    assert!(failed.is_empty(), "seeds {failed:?}");
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 0..20 {
        let (one, other) = (run(seed, |_| {}).history.events, run(seed, |_| {}).history.events);
        let difference = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!((one.len(), difference), (other.len(), None), "seed {seed}");
    }
}
