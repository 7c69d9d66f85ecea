//! Holds that keep others out for `at_least` and end at `max_hold`, and bodies that are dropped before their end and make the lock rest for
//! its `lock_delay`, in many worlds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::servers::{choose_delete, model_server};
use super::tests::in_each_world;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{LockError, LockManager};

/// A bug has to show in this number of worlds.
const WORLDS: u64 = 100;
const ROUNDS: u32 = 6;
/// Longer than all others together need the lock.
const PATIENT: Duration = Duration::from_mins(1);
/// By then everything that kept others out is free.
const SETTLED: Duration = Duration::from_secs(8);
/// What a few messages take.
const MESSAGES: Duration = Duration::from_millis(20);
/// Timers have whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

const TOO_SOON: &str = "a second holder came sooner than `at_least`, or `lock_delay`";
const PAST_MAX_HOLD: &str = "a hold goes on after `max_hold`";

/// What was seen of the lock.
#[derive(Default)]
struct Board {
    /// Until when others are to be kept out.
    kept_until: Option<Instant>,
    seen: Vec<String>,
}

/// A task that uses the lock again and again.
struct Task {
    locks: LockManager,
    board: Arc<Mutex<Board>>,
    is_troubled: bool,
    random: Rng,
}

impl Task {
    async fn live(mut self) {
        for _ in 0..ROUNDS {
            sleep(Duration::from_millis(self.random.u64(..60))).await;
            if self.random.u8(..4) == 0 {
                self.drop_a_body().await;
            } else {
                self.once().await;
            }
        }
    }

    async fn once(&mut self) {
        let mut sometimes = |range: std::ops::Range<u64>| {
            let time = Duration::from_millis(self.random.u64(range));
            self.random.bool().then_some(time)
        };
        let (at_least, max_hold) = (sometimes(20..400), sometimes(20..400));
        let used = sometimes(0..500).unwrap_or_default();
        let expire = Duration::from_millis(self.random.u64(100..2000));
        let mut request = self.locks.lock("k", &0).timeout(PATIENT).expire(expire);
        if let Some(at_least) = at_least {
            request = request.at_least(at_least);
        }
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(_) if self.is_troubled => return,
            Err(error) => return self.see(format!("a patient task did not get the lock: {error}")),
        };
        let start = Instant::now();
        self.begin(start + at_least.unwrap_or_default());
        while start.elapsed() < used && guard.is_valid() {
            sleep(TICK * 5).await;
        }
        if max_hold.is_some_and(|longest| start.elapsed() > longest + TICK) && guard.is_valid() {
            self.see(format!("{PAST_MAX_HOLD}: {:?} of {max_hold:?}", start.elapsed()));
        }
        let held = start.elapsed();
        let is_early = max_hold.is_none_or(|longest| held + MESSAGES < longest);
        if self.random.bool() {
            return;
        }
        match guard.release().await {
            Err(error @ LockError::Lost { .. }) if is_early && !self.is_troubled => {
                self.see(format!(
                    "lost after {held:?}, max_hold {max_hold:?}, at_least {at_least:?}, {expire:?}: {error:?}"
                ));
            }
            _ => {}
        }
    }

    /// Drops a body before its end. Its messages may arrive later, so the lock rests.
    async fn drop_a_body(&mut self) {
        let [used, delay] = [0..200, 20..400].map(|range| Duration::from_millis(self.random.u64(range)));
        let begun = Notify::new();
        let body = async {
            self.begin(Instant::now());
            begun.notify_one();
            std::future::pending::<()>().await;
        };
        let dropped = async {
            begun.notified().await;
            sleep(used).await;
        };
        tokio::select! {
            ended = self.locks.lock("k", &0).timeout(PATIENT).lock_delay(delay).run(body) => {
                if !self.is_troubled {
                    self.see(format!("a body ended by itself: {ended:?}"));
                }
            }
            () = dropped => {}
        }
        // With faults, the message that makes the lock rest may be lost.
        if !self.is_troubled {
            let mut board = self.board.lock().unwrap();
            board.kept_until = board.kept_until.max(Some(Instant::now() + delay));
        }
    }

    fn begin(&self, kept_until: Instant) {
        let mut board = self.board.lock().unwrap();
        let early = board.kept_until.map(|until| until.saturating_duration_since(Instant::now()));
        if let Some(early) = early.filter(|early| *early > TICK) {
            board.seen.push(format!("{TOO_SOON} by {early:?}"));
        }
        board.kept_until = board.kept_until.max(Some(kept_until));
    }

    fn see(&self, what: String) {
        self.board.lock().unwrap().seen.push(what);
    }
}

async fn trouble(network: &Network, mut random: Rng) {
    for _ in 0..random.u32(1..6) {
        sleep(Duration::from_millis(random.u64(50..900))).await;
        let process = *random.choice(&["p", "q", "r"]).unwrap();
        match random.u8(..3) {
            0 => network.cut(Some(process)),
            1 => network.part(process, Duration::from_millis(random.u64(10..2000))),
            _ => network.freeze(Duration::from_millis(random.u64(10..400))),
        }
    }
}

/// Three processes use one lock; in every other world there are faults, and one process may be killed.
async fn play(seed: u64) -> Vec<String> {
    let (_time, mut random) = (Simulated::begin(), Rng::with_seed(seed));
    let network = Network::new(model_server(None, choose_delete(&random)), 1.0, random.fork());
    let delay = Duration::from_micros(random.u64(50..3000));
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    let is_troubled = seed % 2 == 1;
    let board: Arc<Mutex<Board>> = Arc::default();
    let processes = ["p", "q", "r"].map(|name| connect(&network, name));
    let mut tasks: Vec<Vec<JoinHandle<()>>> = Vec::new();
    for locks in &processes {
        let live = |_| {
            let (locks, board, random) = (locks.clone(), Arc::clone(&board), random.fork());
            tokio::spawn(Task { locks, board, is_troubled, random }.live())
        };
        tasks.push((0..3).map(live).collect());
    }
    if is_troubled {
        trouble(&network, random.fork()).await;
        if random.bool() {
            network.part("r", Duration::from_hours(1));
            tasks.pop().unwrap().into_iter().for_each(|task| task.abort());
        }
    }
    for task in tasks.into_iter().flatten() {
        task.await.unwrap();
    }
    for locks in &processes[..2] {
        locks.shutdown().await;
    }
    sleep(SETTLED).await;
    let mut seen = std::mem::take(&mut board.lock().unwrap().seen);
    if network.server(ModelServer::snapshot).iter().any(|(key, _)| key.starts_with("k:")) {
        seen.push("the lock was left behind".to_owned());
    }
    if processes[..2].iter().any(|locks| !locks.core().table().all().is_empty()) {
        seen.push("a slot was left behind".to_owned());
    }
    seen
}

fn seen(seed: u64, bug: Option<Mutant>) -> Vec<String> {
    let _seeded = Seeded::begin(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(seed))
}

#[test]
fn every_promise_is_kept_by_holds_with_terms() {
    in_each_world(WORLDS, |seed| seen(seed, None));
}

#[test]
fn each_bug_of_terms_shows() {
    let cases = [
        (Mutant::RestSkipped, TOO_SOON),
        (Mutant::RestWithdrawn, TOO_SOON),
        (Mutant::KeptWithoutStore, TOO_SOON),
        (Mutant::NotDelayed, TOO_SOON),
        (Mutant::RenewedPastMaxHold, PAST_MAX_HOLD),
    ];
    for (bug, what) in cases {
        let shows = |world: &u64| seen(*world, Some(bug)).iter().any(|text| text.starts_with(what));
        let world = (0..WORLDS * 10).find(shows);
        println!("{bug:?}: world {world:?}");
        assert!(world.is_some(), "{bug:?}");
    }
}
