//! Failovers while several managers work; the history checker then checks their holds.
//!
//! `FAILOVERS=100 cargo test -p tests --test servers failovers::` plays a hundred of each, in some twenty minutes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use history::checks::{Bounds, Check, Violation};
use history::checks::{acquires_return_in_time, claims_never_overlap, errors_are_true, fences_increase};
use history::claims::HARNESS;
use history::event::now;
use history::{Diary, History, Recorder, Wanted, What};
use lock_runtime::LockManager;
use tests::cluster::Cluster;
use tests::sentinel::Sentinels;
use tests::server::Kind as Server;
use tests::soak::arena::{Arena, Shards};
use tests::soak::verdict::fences_grow;
use tests::soak::worker::watch;
use tests::soak::{Kind, Ours, Place, Strike};

// More threads than tasks: tasks block while they write the history, for up to half a second when a compiler runs, and no
// timer may be delayed by that.
const MANAGERS: u32 = 3;
const TASKS: u32 = 4;
const BOUNDS: Bounds = Bounds {
    lease: Duration::from_secs(3),
    noise: Duration::from_millis(250),
    round_trip: Duration::ZERO,
    answer: Duration::from_millis(500),
    forgetful: false,
    tells: true,
    queues: true,
    splits: false,
    linger: Duration::ZERO,
};

/// The faults; a planned failover without a fault loses nothing.
const FAULTS: [Kind; 3] = [Kind::KillMaster, Kind::FailOver, Kind::StopMasterUntilReplaced];

/// Plays this many failovers under load. Returns the history, and the number of grants.
async fn play(mut arena: impl Arena, kinds: &'static [Kind], failovers: usize, replicas: u32) -> (History, usize) {
    let folder = tempfile::tempdir().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (mut locks, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..MANAGERS {
        let name = format!("m{number}");
        let builder = LockManager::builder().url(&arena.url()).label(&name);
        let within = Duration::from_millis(200);
        let lock = Arc::new(Ours::from(builder.min_replicas(replicas, within).connect().await.unwrap()));
        for task in 0..TASKS {
            let diary = Diary::new(Recorder::new(folder.path(), &name, task));
            tasks.push(tokio::spawn(work(Arc::clone(&lock), keys().nth(task as usize), diary, Arc::clone(&over))));
        }
        locks.push(lock);
    }
    // Record when the machine is too busy: the library is not to blame for that.
    let watcher = {
        let (mut recorder, over) = (Recorder::new(folder.path(), HARNESS, 1), Arc::clone(&over));
        std::thread::spawn(move || watch(&mut recorder, |_| over.load(Ordering::SeqCst)))
    };
    let path = folder.path().to_owned();
    // The harness blocks its thread.
    let arena = tokio::task::spawn_blocking(move || {
        for number in 0..failovers {
            std::thread::sleep(Duration::from_millis(500));
            let (kind, from) = (kinds[number % kinds.len()], now());
            let strike = Strike { at: Duration::ZERO, kind, victim: fastrand::usize(..), length: Duration::ZERO };
            let (target, over) = arena.suffer(&strike);
            let fault = What::Fault { kind: format!("{kind:?}"), target, from };
            Recorder::new(&path, HARNESS, 0).note_of(over, HARNESS, fault);
        }
        over.store(true, Ordering::SeqCst);
        arena
    })
    .await
    .unwrap();
    watcher.join().unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_that_all_goes_on(&locks, folder.path()).await;
    drop(arena);
    let history = History::read(folder.path());
    let granted = history.attempts.iter().filter(|attempt| attempt.claim.is_some()).count();
    (history, granted)
}

/// The keys of the locks.
fn keys() -> impl Iterator<Item = String> {
    (0..3).map(|key| format!("p:{key}"))
}

fn shards() -> Shards {
    Shards { cluster: Cluster::with(3, true), keys: keys().collect(), moves_atomically: false }
}

/// Works with one lock, so that each lock is contended however long another one is held; or, with `None`, with any of them.
async fn work(lock: Arc<Ours>, own: Option<String>, mut diary: Diary, over: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::new();
    while !over.load(Ordering::SeqCst) {
        let key = own.clone().unwrap_or_else(|| format!("p:{}", random.u32(..3)));
        let (timeout, expire) = ([0, 100, 1000, 5000][random.usize(..4)], [300, 1000, 3000][random.usize(..3)]);
        let wanted = Wanted { timeout, expire, renew: random.bool(), fenced: random.bool(), ..Wanted::default() };
        if let Some(kept) = diary.acquire(&*lock, &key, wanted, None).await {
            // Most holds are short; some exceed their lease.
            let longest = if random.u32(..8) == 0 { expire * 3 / 2 } else { 60 };
            let end = now() + random.u64(..longest * 1_000_000);
            while diary.look(&kept) && now() < end {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            diary.release(kept).await;
        }
        tokio::time::sleep(Duration::from_millis(random.u64(..5))).await;
    }
}

/// Checks that each manager can still acquire each lock.
async fn assert_that_all_goes_on(locks: &[Arc<Ours>], folder: &Path) {
    for (number, lock) in locks.iter().enumerate() {
        let mut diary = Diary::new(Recorder::new(folder, &format!("m{number}"), TASKS));
        for key in keys() {
            let wanted = Wanted { timeout: 5000, expire: 1000, ..Wanted::default() };
            let kept = diary.acquire(&**lock, &key, wanted, None).await;
            diary.release(kept.unwrap_or_else(|| panic!("m{number} does not get {key}: {}", last_error(folder)))).await;
        }
    }
}

/// The error of the last attempt in a history.
fn last_error(folder: &Path) -> String {
    let history = History::read(folder);
    let outcomes = history.attempts.iter().filter_map(|attempt| attempt.outcome.as_ref());
    outcomes.max_by_key(|(at, ..)| *at).map(|(.., text)| text.clone()).unwrap_or_default()
}

fn found(history: &History, checks: &[Check], bounds: Bounds) -> Vec<Violation> {
    checks.iter().flat_map(|check| check(history, &bounds)).collect()
}

/// This many grants per failover show that locks were in use. More is a matter of chance, since some holds last for seconds.
const GRANTS: usize = 3;

/// A failover may cost exclusion, and nothing else.
async fn cost_no_more_than_exclusion(place: Place, arena: impl Arena, failovers: usize) {
    let (history, granted) = play(arena, &FAULTS, failovers, 0).await;
    let bounds = Bounds { forgetful: true, ..BOUNDS };
    let mut violations = found(&history, &[acquires_return_in_time, errors_are_true], bounds);
    violations.extend(fences_grow(place, &history, &BOUNDS));
    let overlaps = found(&history, &[claims_never_overlap], BOUNDS).len();
    eprintln!("{failovers} failovers, {granted} grants, {overlaps} overlaps");
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(granted > failovers * GRANTS, "{granted}");
}

/// If every replica confirms grants, or without a fault, a failover must not even cost exclusion.
async fn cost_nothing(arena: impl Arena, kinds: &'static [Kind], failovers: usize, replicas: u32) {
    let (history, granted) = play(arena, kinds, failovers, replicas).await;
    let violations = found(&history, &[claims_never_overlap, fences_increase, acquires_return_in_time], BOUNDS);
    eprintln!("{failovers} failovers, {granted} grants");
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(granted > failovers * GRANTS, "{granted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn fencing_tokens_grow_over_failovers_and_all_goes_on() {
    cost_no_more_than_exclusion(Place::Sentinel, Sentinels::start(1), failovers(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn locks_that_the_replica_confirmed_are_exclusive_over_failovers() {
    cost_nothing(Sentinels::start(1), &FAULTS, failovers(3), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn fencing_tokens_grow_over_failovers_in_a_cluster_and_all_goes_on() {
    cost_no_more_than_exclusion(Place::Cluster, shards(), failovers(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn locks_that_the_replica_confirmed_are_exclusive_over_failovers_in_a_cluster() {
    cost_nothing(shards(), &FAULTS, failovers(3), 1).await;
}

/// While a slot moves, its free locks are granted by a master that does not serve the slot yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn locks_that_the_replica_confirmed_are_exclusive_while_their_slots_move() {
    cost_nothing(shards(), &[Kind::MoveSlots, Kind::KillMaster], failovers(4), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn slots_that_move_and_failovers_without_a_fault_cost_nothing() {
    cost_nothing(shards(), &[Kind::MoveSlots, Kind::MoveSlots, Kind::FailOver], failovers(6), 0).await;
}

/// With Valkey 9's `CLUSTER MIGRATESLOTS`.
#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn slots_that_valkey_moves_atomically_cost_nothing() {
    let cluster = Cluster::with_replicas(Server::Valkey);
    let shards = Shards { cluster, keys: keys().collect(), moves_atomically: true };
    cost_nothing(shards, &[Kind::MoveSlots, Kind::MoveSlots, Kind::FailOver], failovers(6), 0).await;
}

/// `FAILOVERS=100` plays more than the usual number.
fn failovers(usually: usize) -> usize {
    std::env::var("FAILOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
}
