use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use fastrand::Rng;
use history::timeline::draw;

use super::seeded::{ALL, Seeded};
use super::world::{Outcome, Place, run};

fn explain(seed: u64, outcome: &Outcome) -> String {
    let found: Vec<_> = outcome.violations.iter().take(3).map(|violation| draw(&outcome.history, violation)).collect();
    format!("seed {seed}: {} violations\n{:?}\n{}", outcome.violations.len(), outcome.plan, found.join("\n"))
}

/// `SEED=7 EVENTS=1` prints all events.
fn dump(outcome: &Outcome) {
    if std::env::var_os("EVENTS").is_some() {
        for event in &outcome.history.events {
            eprintln!("{:>12} {}/{} {:?}", event.t / 1000, event.process, event.task, event.what);
        }
    }
}

/// `SEEDS=20000` runs more, `SEED=7` only that one, and both together run that many worlds from that seed on.
fn seeds(usually: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = number("SEEDS");
    number("SEED").map_or(0..count.unwrap_or(usually), |seed: u64| seed..seed + count.unwrap_or(1))
}

/// Runs a check in each world, on all processors. The check returns the violations.
pub(super) fn in_each_world(usually: u64, check: impl Fn(u64) -> Vec<String> + Sync) {
    let (next, found) = (Mutex::new(seeds(usually)), Mutex::new(Vec::new()));
    on_all_processors(|| {
        while let Some(seed) = { next.lock().unwrap().next() } {
            let texts = check(seed).into_iter().map(|text| format!("SEED={seed}: {text}"));
            found.lock().unwrap().extend(texts);
        }
    });
    let found = &*found.lock().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

pub(super) fn on_all_processors(work: impl Fn() + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&work))));
}

#[test]
fn every_promise_is_kept_in_every_world() {
    all_is_kept(Place::OneServer, 500);
}

#[test]
fn every_promise_is_kept_on_every_quorum() {
    all_is_kept(Place::Quorum, 500);
}

#[test]
fn every_promise_is_kept_in_every_cluster() {
    all_is_kept(Place::Cluster, 200);
}

fn all_is_kept(place: Place, usually: u64) {
    let (next, count) = (Mutex::new(seeds(usually)), Mutex::new((0, 0, Vec::new())));
    on_all_processors(|| {
        while let Some(seed) = { next.lock().unwrap().next() } {
            let outcome = run(place, seed, None);
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
    println!("{:?}: {grants} grants, {faults} faults", seeds(usually));
    assert!(failed.is_empty(), "seeds {failed:?}");
}

#[test]
fn the_same_seed_is_the_same_history() {
    for (place, seed) in [Place::OneServer, Place::Quorum, Place::Cluster]
        .into_iter()
        .flat_map(|place| (0..20).map(move |seed| (place, seed)))
    {
        let (one, other) = (run(place, seed, None).history.events, run(place, seed, None).history.events);
        let difference = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!((one.len(), difference), (other.len(), None), "{place:?}, seed {seed}");
    }
}

/// `MUTANT='part of a name in bugs.md,…'` runs only some, `SEEDS=20000` more worlds than usual.
#[test]
fn each_seeded_bug_is_caught_by_its_check() {
    let only = std::env::var("MUTANT").unwrap_or_default();
    let meant = |seeded: &&Seeded| only.split(',').any(|part| seeded.name.contains(part));
    assert!(ALL.iter().any(|seeded| meant(&seeded)), "no bug has such a name: {only}");
    let (next, survivors) = (Mutex::new(ALL.iter().filter(meant)), Mutex::new(Vec::new()));
    on_all_processors(|| {
        while let Some(seeded) = { next.lock().unwrap().next() } {
            let mut others = BTreeSet::new();
            let limit = seeds(seeded.budget);
            let fitting =
                (limit.start..).filter(|seed| (seeded.shows_in)(&seeded.place.plan(&mut Rng::with_seed(*seed))));
            let searched = fitting.take(usize::try_from(limit.end - limit.start).unwrap());
            let is_free = std::env::var("SEED").is_err();
            let recorded = seeded.seen_in.filter(|_| is_free);
            let caught = recorded.into_iter().chain(searched).find(|seed| {
                let found = run(seeded.place, *seed, Some(seeded.bug)).violations;
                others.extend(found.iter().map(|violation| violation.check));
                // Not in a world that also shows the violation without the bug.
                found.iter().any(|violation| violation.check == seeded.check)
                    && run(seeded.place, *seed, None).violations.is_empty()
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
        include_str!("../store/redis/scripts/denied.lua"),
        include_str!("../store/redis/scripts/free.lua"),
        include_str!("../store/redis/scripts/queue.lua"),
        include_str!("../store/redis/scripts/release.lua"),
        include_str!("../store/redis/scripts/renew.lua"),
        include_str!("../store/redis/scripts/values.lua"),
    ];
    for (from, _) in ALL.iter().flat_map(|seeded| seeded.bug.patches()) {
        assert!(scripts.iter().any(|script| script.contains(from)), "{from}");
    }
}

#[test]
fn the_docs_list_each_seeded_bug_and_its_check() {
    let docs = include_str!("bugs.md");
    let (_, section) = docs.split_once("## Bugs in simulated worlds").unwrap();
    // Releases by force have worlds and a list of their own.
    let (section, _) = section.split_once("\n### ").unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let wanted: Vec<_> = ALL.iter().map(|seeded| format!("| {} | {} |", seeded.name, seeded.check)).collect();
    assert_eq!(rows, wanted);
}
