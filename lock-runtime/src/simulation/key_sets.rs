//! Sets of keys, in many worlds: all or none, no wait is endless, and nothing is left behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::servers::{choose_delete, model_server};
use super::tests::in_each_world;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{LockError, LockManager};

/// A bug has to show in this many worlds.
const WORLDS: u64 = 200;
const PROCESSES: u64 = 3;
const TASKS: u64 = 3;
const KEYS: u64 = 4;
const ROUNDS: u32 = 12;
/// Longer than all other tasks together need the keys.
const PATIENT: Duration = Duration::from_secs(20);
/// An acquire returns by this time after its timeout (promise 7), and a single try by this time after what an answer may take.
const IN_TIME: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_millis(500);
/// By then an abandoned ask is withdrawn (promise 5).
const SETTLED: Duration = Duration::from_secs(8);

/// The owner of each key, and the violations seen.
#[derive(Default)]
struct Witness {
    holders: BTreeMap<u64, u64>,
    seen: Vec<String>,
}

/// A task that acquires sets of keys, one after another.
struct Task {
    id: u64,
    locks: LockManager,
    witness: Arc<Mutex<Witness>>,
    random: Rng,
}

impl Task {
    async fn live(mut self) {
        for _ in 0..ROUNDS {
            let count = self.random.u64(1..=3);
            let keys: Vec<_> = (0..count).map(|_| self.random.u64(..KEYS)).collect();
            let timeout = *self.random.choice(&[0, 60, 500, 20_000, 20_000]).unwrap();
            self.once(&keys, Duration::from_millis(timeout)).await;
            sleep(Duration::from_millis(self.random.u64(..40))).await;
        }
    }

    async fn once(&mut self, keys: &[u64], timeout: Duration) {
        let request = self.locks.lock_all("k", keys).timeout(timeout);
        let used = Duration::from_millis(self.random.u64(..30));
        let is_dropped = timeout < PATIENT && self.random.u8(..4) == 0;
        let patience = if is_dropped { Duration::from_millis(self.random.u64(..50)) } else { PATIENT * 2 };
        let start = Instant::now();
        let outcome = tokio::time::timeout(patience, request.acquire()).await;
        let allowed = if timeout.is_zero() { ANSWER } else { timeout } + IN_TIME;
        if start.elapsed() > allowed {
            self.see(format!("{keys:?}: {:?} with a timeout of {timeout:?}", start.elapsed()));
        }
        match outcome {
            Err(_) if is_dropped => {}
            Err(_) => self.see(format!("{keys:?}: no answer within {patience:?}")),
            Ok(Ok(guard)) => {
                self.take(keys, &guard.keys());
                sleep(used).await;
                self.give_back(keys);
                if self.random.bool() {
                    drop(guard);
                } else if let Err(error) = guard.release().await {
                    // The connection may have just been cut.
                    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
                }
            }
            Ok(Err(error)) => {
                let is_one = |key: &u64| error.key() == Some(&format!("k:{key}"));
                if error.is_timeout() && !keys.iter().any(is_one) {
                    self.see(format!("{keys:?}: {error}"));
                }
                if timeout == PATIENT {
                    self.see(format!("{keys:?}: {error}"));
                }
            }
        }
    }

    fn take(&self, keys: &[u64], names: &[&str]) {
        let mut witness = self.witness.lock().unwrap();
        for key in keys {
            if !names.contains(&format!("k:{key}").as_str()) {
                witness.seen.push(format!("{key} is not among {names:?}"));
            }
            if let Some(other) = witness.holders.insert(*key, self.id)
                && other != self.id
            {
                witness.seen.push(format!("{key} is held by {other} and {}", self.id));
            }
        }
    }

    fn give_back(&self, keys: &[u64]) {
        let mut witness = self.witness.lock().unwrap();
        witness.holders.retain(|key, _| !keys.contains(key));
    }

    fn see(&self, text: String) {
        self.witness.lock().unwrap().seen.push(text);
    }
}

/// The violations in this world.
fn play(seed: u64, bug: Option<Mutant>) -> Vec<String> {
    let _seeded = Seeded::begin(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (mut seen, network) = runtime.block_on(async {
        let _time = Simulated::begin();
        let mut random = Rng::with_seed(seed);
        let network = Network::new(model_server(None, choose_delete(&random)), 1.0, random.fork());
        let cut = if seed.is_multiple_of(2) { 0.0 } else { 0.003 };
        let delay = Duration::from_millis(random.u64(..4));
        let push_lost = if seed.is_multiple_of(3) { 0.1 } else { 0.0 };
        let calm = Conditions { delay, slow: 0.0, refused: 0.0, cut_before: 0.0, cut_after: 0.0, push_lost: 0.0 };
        network.set_conditions(Conditions { cut_before: cut, cut_after: cut, push_lost, ..calm });
        let witness = Arc::new(Mutex::new(Witness::default()));
        let processes: Vec<_> = (0..PROCESSES).map(|number| connect(&network, &format!("p{number}"))).collect();
        let running: Vec<_> = (0..PROCESSES * TASKS)
            .map(|id| {
                let locks = processes[usize::try_from(id % PROCESSES).unwrap()].clone();
                tokio::spawn(Task { id, locks, witness: Arc::clone(&witness), random: random.fork() }.live())
            })
            .collect();
        if seed.is_multiple_of(4) {
            for _ in 0..random.u32(1..5) {
                sleep(Duration::from_millis(random.u64(..300))).await;
                network.freeze(Duration::from_millis(random.u64(..700)));
            }
        }
        for task in running {
            task.await.unwrap();
        }
        network.set_conditions(calm);
        let start = Instant::now();
        let last = connect(&network, "last");
        let everything = last.lock_all("k", 0..KEYS).timeout(SETTLED).acquire().await;
        let mut seen = std::mem::take(&mut witness.lock().unwrap().seen);
        if let Err(error) = &everything {
            seen.push(format!("left behind after {:?}: {error}", start.elapsed()));
        }
        for locks in &processes {
            if locks.stats().held > 0 {
                seen.push(format!("{:?} still holds {}", locks, locks.stats().held));
            }
        }
        drop(everything);
        // An outstanding release keeps its manager in memory, and the world with it.
        for locks in processes.iter().chain([&last]) {
            locks.shutdown().await;
        }
        (seen, Arc::downgrade(&network))
    });
    drop(runtime);
    if network.strong_count() > 0 {
        seen.push("something of the world stays in memory".to_owned());
    }
    seen
}

/// By how much a set is too late while the server hangs.
async fn overdue(bug: Option<Mutant>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let locks = connect(&network, "p");
    locks.lock_all("k", 0..KEYS).acquire().await.unwrap().release().await.unwrap();
    network.freeze(SETTLED);
    let mut overdue = Duration::ZERO;
    for timeout in [0, 20, 60, 500] {
        let (start, timeout) = (Instant::now(), Duration::from_millis(timeout));
        assert!(locks.lock_all("k", 0..KEYS).timeout(timeout).acquire().await.is_err());
        let allowed = if timeout.is_zero() { ANSWER } else { timeout } + IN_TIME;
        overdue = overdue.max(start.elapsed().saturating_sub(allowed));
    }
    overdue
}

/// The commands of all keys together get the time of one command.
#[tokio::test(start_paused = true)]
async fn a_set_returns_in_time_while_the_server_hangs() {
    assert_eq!(overdue(None).await, Duration::ZERO);
    assert!(overdue(Some(Mutant::TimesOfKeysAddUp)).await > Duration::ZERO);
}

/// Another process holds the second key, and may keep it after its hold. A try for such a key gives that process time to yield the key:
/// more time than the request has.
async fn reports_a_busy_key_in_time() -> bool {
    let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
    locks.lock_all("k", 0..KEYS).acquire().await.unwrap().release().await.unwrap();
    let _held = others.lock("k", &1).linger(Duration::from_secs(1)).acquire().await.unwrap();
    let mut is_well = true;
    for timeout in [1, 20, 60, 100, 500] {
        let (start, timeout) = (Instant::now(), Duration::from_millis(timeout));
        let told = locks.lock_all("k", 0..KEYS).timeout(timeout).acquire().await;
        println!("{timeout:?}: after {:?}: {told:?}", start.elapsed());
        is_well &= matches!(&told, Err(LockError::Timeout { key, .. }) if key == "k:1");
        is_well &= start.elapsed() < timeout + IN_TIME / 10;
    }
    // Each request is counted once, and its tries are not counted.
    is_well && locks.stats().timeouts == 5
}

#[tokio::test(start_paused = true)]
async fn a_set_with_a_short_timeout_reports_the_key_that_another_process_holds() {
    assert!(reports_a_busy_key_in_time().await);
}

/// The wait for the first key leaves too little time for a distant answer about the others. That says nothing about the server.
#[tokio::test(start_paused = true)]
async fn a_set_that_waited_for_its_first_key_does_not_report_a_far_server_as_silent() {
    let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    network.move_away(Duration::from_millis(100));
    let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
    locks.lock_all("k", 0..KEYS).timeout(SETTLED).acquire().await.unwrap().release().await.unwrap();
    let timeout = Duration::from_secs(1);
    for held_for in [700, 800, 850, 900, 950, 990] {
        let first = others.lock("k", &0).timeout(SETTLED).acquire().await.unwrap();
        let waiting = locks.lock_all("k", 0..KEYS).timeout(timeout).acquire();
        let holder = async {
            sleep(Duration::from_millis(held_for)).await;
            first.release().await.unwrap();
        };
        let (told, ()) = tokio::join!(waiting, holder);
        assert!(told.as_ref().err().is_none_or(LockError::is_timeout), "{held_for} ms: {told:?}");
        drop(told);
        sleep(SETTLED).await;
    }
}

/// A server that answers no command is reported, however short the time is, even to a request that has waited for its first key.
#[tokio::test(start_paused = true)]
async fn a_set_reports_a_silent_server_however_short_its_time() {
    let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
    locks.lock_all("k", 0..KEYS).acquire().await.unwrap().release().await.unwrap();
    let first = others.lock("k", &0).acquire().await.unwrap();
    let waiting = locks.lock_all("k", 0..KEYS).timeout(Duration::from_millis(400)).acquire();
    let server = async {
        sleep(Duration::from_millis(100)).await;
        first.release().await.unwrap();
        network.freeze(SETTLED);
    };
    let (told, ()) = tokio::join!(waiting, server);
    assert!(matches!(told, Err(LockError::Backend { .. })), "{told:?}");
    for timeout in [1, 20, 60, 100, 500] {
        let told = locks.lock_all("k", 0..KEYS).timeout(Duration::from_millis(timeout)).acquire().await;
        assert!(matches!(told, Err(LockError::Backend { .. })), "{timeout} ms: {told:?}");
    }
}

/// From afar, both keys are busy at first. The first one is granted so late that no answer for the second can arrive in time.
#[tokio::test(start_paused = true)]
async fn a_set_whose_time_ran_out_behind_a_busy_key_is_busy_and_the_server_not_silent() {
    for (bug, is_busy) in [(None, true), (Some(Mutant::RefusalForgotten), false)] {
        let _seeded = Seeded::begin(bug);
        let _time = Simulated::begin();
        let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
        let (others, locks) = (connect(&network, "others"), connect(&network, "p"));
        let first = others.lock("k", &0).acquire().await.unwrap();
        let second = others.lock("k", &1).acquire().await.unwrap();
        network.move_away(Duration::from_millis(130));
        let set = tokio::spawn(locks.lock_all("k", [0, 1]).timeout(Duration::from_millis(500)).acquire());
        sleep(Duration::from_millis(265)).await;
        drop((first, second));
        let told = set.await.unwrap().unwrap_err();
        assert_eq!(told.is_timeout(), is_busy, "{bug:?}: {told:?}");
    }
}

#[test]
fn every_promise_is_kept_by_sets_of_keys() {
    in_each_world(WORLDS, |seed| play(seed, None));
}

#[test]
fn a_set_that_is_half_taken_and_kept_is_seen() {
    let caught = (0..WORLDS).find(|seed| !play(*seed, Some(Mutant::HalfTakenSetKept)).is_empty());
    println!("half a set is kept: world {caught:?}");
    assert!(caught.is_some());
}

/// Two tasks then wait for each other until one of them gives up.
#[test]
fn keys_that_are_taken_in_any_order_are_seen() {
    let caught = (0..WORLDS).find(|seed| !play(*seed, Some(Mutant::KeysInAnyOrder)).is_empty());
    println!("keys in any order: world {caught:?}");
    assert!(caught.is_some());
}
