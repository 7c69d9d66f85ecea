//! Readers, writers and permits in many worlds: what overlaps, which tasks starve, and what is left behind. In some of them holds are lost
//! while woken tasks are not polled.
//!
//! These worlds have checks of their own, which look at the guards themselves.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::network::{Conditions, Network};
use super::process::connect;
use super::seeded::Bug;
use super::servers::{choose_delete, model_server};
use super::tests::in_each_world;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::observe::Path;
use crate::store::Events as _;
use crate::{LockError, LockGuard, LockManager, OnBusy};

mod dead;
mod scenes;

/// A bug has to show in this many worlds.
const WORLDS: u64 = 40;
const PATIENT: Duration = Duration::from_secs(40);
const LEASE: Duration = Duration::from_secs(3);
/// How long there are faults.
const FAULTS: Duration = Duration::from_secs(4);
/// How many permits exist.
const PERMITS: u32 = 2;
/// The longest round of the server's queue without faults: each of three processes has the lock alone, and then shared, each time for the
/// longest hold and a few messages.
const ROUND: Duration = Duration::from_millis(200);
/// The longest wait in a crowd, where most tasks of a process share the lock.
const SOON_IN_A_CROWD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Alone,
    Read,
    Permit,
    /// The only permit: a request with another number of permits.
    Only,
    /// Alone, replacing the holder.
    Newest,
}

/// What a world contains.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each adds to the world by itself")]
struct Scene {
    modes: &'static [Mode],
    is_troubled: bool,
    /// Whether some readers are polled seldom.
    is_late: bool,
    /// Whether there are many tasks that ask again at once.
    is_dense: bool,
    /// Whether the leases of readers and writers linger.
    lingers: bool,
    /// Whether all tasks belong to one process.
    is_one_process: bool,
    /// Whether holds are lost, and tasks of all modes are polled seldom.
    loses: bool,
    /// Whether the store is the embedded one.
    is_embedded: bool,
}

const READERS: Scene = Scene::of(&[Mode::Read, Mode::Read, Mode::Read, Mode::Alone]);
const PERMITTED: Scene = Scene::of(&[Mode::Permit, Mode::Permit, Mode::Permit, Mode::Alone]);
/// All modes that exclude each other, in one process and in several.
const MIXED: Scene = Scene::of(&[Mode::Read, Mode::Read, Mode::Alone, Mode::Permit]).lingering();
/// Each process has some readers at any time.
const CROWDED: Scene =
    Scene { is_dense: true, ..Scene::of(&[Mode::Read, Mode::Read, Mode::Read, Mode::Read, Mode::Read, Mode::Alone]) };
/// Two numbers of permits in one process: only the process itself can tell the queues apart.
const NUMBERS: Scene = Scene {
    is_dense: true,
    is_one_process: true,
    ..Scene::of(&[Mode::Permit, Mode::Permit, Mode::Permit, Mode::Permit, Mode::Only])
};

impl Scene {
    const fn of(modes: &'static [Mode]) -> Self {
        let (is_troubled, is_late, is_dense, lingers) = (false, false, false, false);
        let (is_one_process, loses, is_embedded) = (false, false, false);
        Self { modes, is_troubled, is_late, is_dense, lingers, is_one_process, loses, is_embedded }
    }

    const fn troubled(self) -> Self {
        Self { is_troubled: true, ..self }
    }

    const fn late(self) -> Self {
        Self { is_late: true, ..self }
    }

    const fn lingering(self) -> Self {
        Self { lingers: true, ..self }
    }

    const fn losing(self) -> Self {
        Self { loses: true, ..self.late() }
    }

    const fn embedded(self) -> Self {
        Self { is_embedded: true, ..self }
    }
}

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a promise of its own")]
struct Shown {
    /// An exclusive holder was not alone.
    overlap: bool,
    /// There were more permits than allowed.
    too_many: bool,
    /// A task had the lock, but its manager knew of no lock in use.
    unknown: bool,
    /// A fencing token was not greater than that of an earlier hold.
    stale_fence: bool,
    /// The longest wait of a patient task.
    longest: Duration,
    /// The longest expected wait of a patient task without faults.
    soon: Duration,
    /// A patient task did not get the lock.
    starved: bool,
    /// A hold was lost before its release, without a fault.
    lost: bool,
    /// What was left on the server at the end.
    left: Vec<String>,
    /// Slots still in use at the end.
    slots: usize,
    /// Whether part of the world stays in memory when all of it is dropped.
    is_kept: bool,
    /// How often readers shared, or several tasks had permits.
    shared: u64,
    /// How often a lease lingered when a hold had ended.
    lingered: u64,
}

impl Shown {
    fn is_slow(&self) -> bool {
        self.longest > self.soon
    }

    fn is_well(&self, scene: Scene) -> bool {
        let is_soon = scene.is_troubled || scene.is_late || !self.is_slow();
        !(self.overlap || self.too_many || self.unknown || self.stale_fence || self.starved || self.lost)
            && is_soon
            && self.left.is_empty()
            && self.slots == 0
            && !self.is_kept
    }
}

/// The current holders, and the violations so far.
#[derive(Default)]
struct Board {
    holds: Vec<(Mode, Weak<LockGuard>)>,
    fence: u64,
    shown: Shown,
}

impl Board {
    fn note(&mut self, mode: Mode, guard: &Arc<LockGuard>, path: Path, waited: Duration) {
        self.shown.longest = self.shown.longest.max(waited);
        self.holds.retain(|(_, hold)| hold.upgrade().is_some_and(|hold| hold.is_valid()));
        if !guard.is_valid() {
            return;
        }
        let others = self.holds.len();
        let is_of_one = |mode| matches!(mode, Mode::Alone | Mode::Newest);
        let is_alone = is_of_one(mode) || self.holds.iter().any(|(mode, _)| is_of_one(*mode));
        self.shown.overlap |= is_alone && others > 0;
        // A request for the larger number may be granted next to the only permit.
        let is_permit = |mode| matches!(mode, Mode::Permit | Mode::Only);
        let permits = self.holds.iter().filter(|(mode, _)| is_permit(*mode)).count();
        self.shown.too_many |= is_permit(mode) && permits >= PERMITS as usize;
        // The store's grants may be seen in another order. A hand-over is seen as it happens.
        self.shown.too_many |= mode == Mode::Only && path == Path::HandOver && permits > 0;
        self.shown.shared += u64::from(others > 0);
        self.holds.push((mode, Arc::downgrade(guard)));
        // Of several tasks that share the lock, one may see a token late that it drew earlier.
        if let Some(fence) = guard.fencing_token().map(u64::from) {
            self.shown.stale_fence |= is_of_one(mode) && fence <= self.fence;
            self.fence = self.fence.max(fence);
        }
    }
}

/// A task that uses the lock again and again.
struct Task {
    locks: LockManager,
    board: Arc<Mutex<Board>>,
    mode: Mode,
    scene: Scene,
    random: Rng,
}

impl Task {
    async fn live(mut self) {
        let lasts_long = self.scene.is_troubled || self.scene.loses;
        let end = Instant::now() + if lasts_long { FAULTS } else { Duration::from_secs(1) };
        let rounds = if self.scene.is_dense { 200 } else { self.random.u32(4..12) };
        for _ in 0..rounds {
            if !self.scene.is_dense {
                sleep(Duration::from_micros(self.random.u64(0..3000))).await;
            }
            let wait = match self.random.u8(..6) {
                _ if !self.scene.is_troubled => PATIENT,
                0 => Duration::ZERO,
                1 => Duration::from_millis(self.random.u64(1..300)),
                _ => PATIENT,
            };
            self.once(wait, false).await;
        }
        while Instant::now() < end {
            sleep(Duration::from_millis(self.random.u64(1..200))).await;
            self.once(PATIENT, false).await;
        }
        self.once(PATIENT, true).await;
    }

    fn linger(&mut self) -> Duration {
        let lingers = self.scene.lingers && self.random.u8(..4) > 0;
        Duration::from_millis(if lingers { self.random.u64(20..2000) } else { 0 })
    }

    async fn once(&mut self, wait: Duration, is_last: bool) {
        let request = self.locks.lock("k", &0).timeout(wait).expire(LEASE).fenced(self.random.u8(..4) == 0);
        let request = match self.mode {
            Mode::Alone => request.linger(self.linger()),
            Mode::Read if self.random.u8(..8) == 0 => request.read().renew(false),
            Mode::Read => request.read().linger(self.linger()),
            Mode::Permit => request.permits(PERMITS),
            Mode::Only => request.permits(1),
            Mode::Newest if wait.is_zero() => request,
            Mode::Newest => request.on_busy(OnBusy::Replace),
        };
        let start = Instant::now();
        let cancelled = self.scene.is_troubled && !is_last && self.random.u8(..6) == 0;
        let patience = if cancelled { Duration::from_millis(self.random.u64(0..80)) } else { PATIENT * 2 };
        let outcome = timeout(patience, request.acquire()).await;
        let waited = start.elapsed();
        match outcome {
            Ok(Ok(guard)) => {
                let path = guard.first.handle().path();
                let guard = Arc::new(guard);
                let is_unknown = self.locks.stats().keys == 0 && guard.is_valid();
                {
                    let mut board = self.board.lock().unwrap();
                    board.note(self.mode, &guard, path, waited);
                    board.shown.unknown |= is_unknown;
                }
                sleep(Duration::from_micros(self.random.u64(0..30_000))).await;
                let guard = Arc::into_inner(guard).unwrap();
                if self.random.bool() {
                    let is_lost = guard.release().await.is_err();
                    let is_calm = !self.scene.is_troubled && !self.scene.is_late;
                    self.board.lock().unwrap().shown.lost |= is_lost && is_calm;
                } else {
                    drop(guard);
                }
                self.board.lock().unwrap().shown.lingered += self.locks.stats().lingering;
            }
            Ok(Err(error)) => {
                let is_starved = is_last || (!self.scene.is_troubled && !self.scene.loses && wait == PATIENT);
                self.board.lock().unwrap().shown.starved |=
                    is_starved && matches!(error, LockError::Timeout { .. } | LockError::Backend { .. });
            }
            Err(_) => {}
        }
    }

    /// Lives, but is polled only now and then.
    async fn live_late(self) {
        let mut random = Rng::with_seed(self.random.clone().u64(..));
        let mut life = Box::pin(self.live());
        while life.as_mut().now_or_never().is_none() {
            sleep(Duration::from_millis(random.u64(5..400))).await;
        }
    }
}

fn begin(
    scene: Scene,
    board: &Arc<Mutex<Board>>,
    locks: &LockManager,
    number: usize,
    random: &mut Rng,
) -> JoinHandle<()> {
    let mode = scene.modes[number % scene.modes.len()];
    let task = Task { locks: locks.clone(), board: Arc::clone(board), mode, scene, random: random.fork() };
    let is_late = scene.is_late && (mode != Mode::Alone || scene.loses) && random.u8(..3) == 0;
    if is_late { tokio::spawn(task.live_late()) } else { tokio::spawn(task.live()) }
}

async fn trouble(network: &Network, mut random: Rng) {
    let delay = Duration::from_micros(random.u64(50..6000));
    let rare = |random: &mut Rng| if random.bool() { 0.0 } else { random.f64() * 0.03 };
    let (cut_before, cut_after, slow) = (rare(&mut random), rare(&mut random), rare(&mut random));
    let push_lost = if random.bool() { 0.0 } else { 0.2 };
    network.set_conditions(Conditions { delay, slow, cut_before, cut_after, push_lost, ..Conditions::default() });
    let end = Instant::now() + FAULTS;
    while Instant::now() < end {
        sleep(Duration::from_millis(random.u64(50..900))).await;
        let process = *random.choice(&["p", "q", "r"]).unwrap();
        match random.u8(..4) {
            0 => network.cut(Some(process)),
            1 => network.part(process, Duration::from_millis(random.u64(10..4000))),
            2 => network.freeze(Duration::from_millis(random.u64(10..700))),
            _ => {}
        }
    }
    network.set_conditions(Conditions { delay, ..Conditions::default() });
}

/// Takes the lock from all holders again and again, or falsely reports that another client has changed it.
async fn lose(processes: [LockManager; 3], mut random: Rng) {
    let end = Instant::now() + FAULTS;
    while Instant::now() < end {
        sleep(Duration::from_millis(random.u64(1..100))).await;
        let locks = random.choice(&processes).unwrap();
        match random.u8(..4) {
            0 => locks.core().on_alarm(None),
            _ => locks.force_release("k", &0).await.map(|_| ()).unwrap(),
        }
    }
}

/// Three processes use one lock. `scene.is_troubled`: one of them may be killed.
async fn play(seed: u64, scene: Scene, bug: Option<Bug>) -> (Shown, Weak<Network>) {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let mut random = Rng::with_seed(seed);
    let server = model_server(bug, choose_delete(&random));
    let (_time, network) = (Simulated::begin(), Network::new(server, 1.0, random.fork()));
    let delay = Duration::from_micros(random.u64(50..2000));
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    let board: Arc<Mutex<Board>> = Arc::default();
    let embedded = scene.is_embedded.then(LockManager::in_memory);
    let processes = ["p", "q", "r"].map(|name| match &embedded {
        Some(first) => LockManager::builder().in_memory_with(first).unwrap(),
        None => connect(&network, name),
    });
    let losing = scene.loses.then(|| tokio::spawn(lose(processes.clone(), random.fork())));
    let tasks_each = if scene.is_dense { 12 } else { random.usize(2..6) };
    let mut tasks: Vec<Vec<JoinHandle<()>>> = Vec::new();
    for locks in processes.iter().take(if scene.is_one_process { 1 } else { processes.len() }) {
        let mut begin = || begin(scene, &board, locks, random.usize(..8), &mut random.fork());
        tasks.push((0..tasks_each).map(|_| begin()).collect());
    }
    if scene.is_troubled {
        let killed = random.u8(..3) == 0;
        let troubles = trouble(&network, random.fork());
        let kill = async {
            if killed {
                sleep(Duration::from_millis(random.u64(10..3000))).await;
                tasks.pop().unwrap().into_iter().for_each(|task| task.abort());
                network.part("r", Duration::from_hours(1));
            }
        };
        tokio::join!(troubles, kill);
    }
    for task in tasks.into_iter().flatten() {
        task.await.unwrap();
    }
    if let Some(losing) = losing {
        losing.await.unwrap();
    }
    for locks in &processes[..2] {
        locks.shutdown().await;
    }
    // The leases of a killed process expire, and so does its place in the queue.
    sleep(LEASE * 2 + Duration::from_secs(15)).await;
    let keys = network.server(ModelServer::snapshot);
    let mut shown = board.lock().unwrap().shown.clone();
    // Each round serves one of a process's tasks that want the lock alone (rule L4). So a task waits one round for each of them.
    let rounds = u32::try_from(tasks_each.max(3)).unwrap();
    shown.soon = if scene.is_dense { SOON_IN_A_CROWD } else { ROUND * rounds };
    shown.left = keys
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| !key.ends_with(":fence") && !key.ends_with(":newest"))
        .collect();
    shown.slots = processes[..2].iter().map(|locks| locks.core().table().all().len()).sum();
    (shown, Arc::downgrade(&network))
}

fn shown(seed: u64, scene: Scene, bug: Option<Bug>) -> Shown {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (mut shown, network) = runtime.block_on(play(seed, scene, bug));
    drop(runtime);
    shown.is_kept = network.strong_count() > 0;
    shown
}

/// A world in which every holder loses the lock soon.
const REPLACED: Scene = Scene::of(&[Mode::Read, Mode::Read, Mode::Newest, Mode::Alone, Mode::Permit]);

const SCENES: [Scene; 16] = [
    READERS,
    CROWDED,
    NUMBERS,
    PERMITTED,
    MIXED,
    READERS.lingering(),
    READERS.late(),
    PERMITTED.late(),
    MIXED.late(),
    READERS.losing(),
    READERS.losing().embedded(),
    REPLACED.losing(),
    REPLACED.losing().embedded(),
    READERS.troubled(),
    PERMITTED.troubled(),
    MIXED.troubled(),
];

#[test]
fn every_promise_is_kept_by_readers_and_permits() {
    let (shared, lingered) = (AtomicU64::new(0), AtomicU64::new(0));
    in_each_world(40, |seed| {
        let scenes = SCENES.into_iter().filter(|scene| !scene.is_dense || seed % 10 == 0);
        let ill = |scene: Scene| {
            let shown = shown(seed, scene, None);
            shared.fetch_add(shown.shared, Ordering::Relaxed);
            lingered.fetch_add(shown.lingered, Ordering::Relaxed);
            (!shown.is_well(scene)).then(|| format!("{scene:?}: {shown:?}"))
        };
        scenes.filter_map(ill).collect()
    });
    assert!(shared.into_inner() > 0, "nobody ever shared the lock");
    assert!(lingered.into_inner() > 0, "no lease ever lingered");
}

/// A bug, the worlds in which it can show, and what shows it.
type Case = (&'static str, Bug, Scene, fn(&Shown) -> bool);

#[test]
fn each_bug_of_shared_leases_shows() {
    let beside: &[(&str, &str)] = &[
        ("and not waiting().shares().has(lock)", ""),
        ("and not queueing.shares().has(lock)", ""),
        ("and not shares.has(lock)", ""),
    ];
    let too_many: &[(&str, &str)] =
        &[("redis.call('ZCARD', shares.of(lock)) < capacity", "redis.call('ZCARD', shares.of(lock)) <= capacity")];
    let overtaken: &[(&str, &str)] =
        &[("or shares.head_lives(lock, entry) then", "or not shares.head_lives(lock, entry) then")];
    let lost: &[(&str, &str)] = &[(
        "local removed = is_left and redis.call('ZREM', shares.of(lock), member) == 1",
        "local removed = redis.call('ZSCORE', shares.of(lock), member)",
    )];
    let untold: &[(&str, &str)] = &[("if channel(owner) ~= but then", "if false then")];
    let cases: [Case; 13] = [
        ("a writer beside a reader", Bug::Scripts(beside), READERS, |shown| shown.overlap),
        ("one permit too many", Bug::Scripts(too_many), PERMITTED, |shown| shown.too_many),
        ("readers overtake a writer on the server", Bug::Scripts(overtaken), CROWDED, Shown::is_slow),
        ("a permit that is released is not free", Bug::Scripts(lost), PERMITTED, Shown::is_slow),
        ("readers are not told of a writer", Bug::Scripts(untold), CROWDED, Shown::is_slow),
        (
            "readers overtake a writer in their process",
            Bug::Code(Mutant::ReadersOvertakeWriter),
            CROWDED,
            Shown::is_slow,
        ),
        ("the first reader ends the hold of all", Bug::Code(Mutant::FirstReaderEndsHold), READERS, |shown| shown.lost),
        ("a draw that fails ends the acquire", Bug::Code(Mutant::FailedDrawNotRepeated), READERS.troubled(), |shown| {
            shown.starved
        }),
        ("a lease of readers lingers on, though a writer waits", Bug::Code(Mutant::LingersOn), MIXED, Shown::is_slow),
        ("those who keep a lease are not told of a writer", Bug::Scripts(untold), MIXED, Shown::is_slow),
        (
            "a queue of the same process is not told of a waiter",
            Bug::Code(Mutant::QueueBesideUntold),
            NUMBERS,
            Shown::is_slow,
        ),
        ("the only permit is handed over beside another", Bug::Code(Mutant::HandOverUncounted), NUMBERS, |shown| {
            shown.too_many
        }),
        ("nobody is woken for a permit that is free", Bug::Code(Mutant::FreeLeaseUntold), PERMITTED, |shown| {
            shown.starved
        }),
    ];
    // A world without a crowd is cheap.
    let worlds = |scene: Scene| if scene.is_dense { WORLDS } else { WORLDS * 5 };
    let is_hidden =
        |&&(_, bug, scene, is_shown): &&Case| !(0..worlds(scene)).any(|seed| is_shown(&shown(seed, scene, Some(bug))));
    let hidden: Vec<_> = cases.iter().filter(is_hidden).map(|case| case.0).collect();
    assert!(hidden.is_empty(), "not seen: {hidden:?}");
}
