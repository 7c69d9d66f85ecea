//! A crowd on a quorum, while servers die, stop, restart empty and are cut off; the history checker then checks the holds.
//!
//! `FAULTS=100 cargo nextest run -p tests --test servers quorum_crowd::` runs longer than usual.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use history::checks::{
    Bounds, Check, Violation, acquires_return_in_time, claims_never_overlap, errors_are_true, fences_increase,
};
use history::claims::HARNESS;
use history::event::now;
use history::timeline::draw;
use history::{Diary, History, Recorder, Wanted, What};
use lock_runtime::{Builder, LockManager};
use tests::proxy::Proxy;
use tests::quorum::Servers;
use tests::soak::Ours;
use tests::soak::worker::watch;

const LONG: Duration = Duration::from_secs(30);
const TASKS: u32 = 4;
/// The longest lease; short, so that a restarted server soon votes again.
const MAX_LEASE: Duration = Duration::from_secs(1);
/// The longest hold.
const LONGEST: Duration = Duration::from_millis(1500);
/// So long a hold may lose all servers that granted it, one after the other.
const VERY_LONG: Duration = Duration::from_secs(5);
const BOUNDS: Bounds = Bounds {
    lease: MAX_LEASE,
    noise: Duration::from_millis(250),
    round_trip: Duration::ZERO,
    answer: Duration::from_millis(500),
    forgetful: false,
    tells: true,
    queues: false,
    splits: true,
    linger: Duration::ZERO,
};

/// Which locks a crowd uses.
#[derive(Clone, Copy)]
enum Locks {
    /// Three locks for which all contend.
    Shared,
    /// One lock per task.
    OfEachTask,
}

/// Managers that work while a harness plays faults on their servers.
struct Crowd {
    folder: tempfile::TempDir,
    over: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    watcher: std::thread::JoinHandle<()>,
}

impl Crowd {
    async fn start(builders: Vec<Builder>, longest: Duration, locks: Locks) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for (number, builder) in builders.into_iter().enumerate() {
            let name = format!("m{number}");
            let builder = builder.label(&name).default_expire(MAX_LEASE).max_lease(MAX_LEASE);
            let lock = Arc::new(Ours::from(builder.connect().await.unwrap()));
            for task in 0..TASKS {
                let diary = Diary::new(Recorder::new(folder.path(), &name, task));
                let keys = match locks {
                    Locks::Shared => (0..3).map(|key| format!("p:{key}")).collect(),
                    Locks::OfEachTask => vec![format!("p:{name}-{task}")],
                };
                tasks.push(tokio::spawn(work(Arc::clone(&lock), diary, Arc::clone(&over), longest, keys)));
            }
        }
        // Record when the machine is too busy: the library is not to blame for that.
        let watcher = {
            let (mut recorder, over) = (Recorder::new(folder.path(), HARNESS, 1), Arc::clone(&over));
            std::thread::spawn(move || watch(&mut recorder, |_| over.load(Ordering::SeqCst)))
        };
        Self { folder, over, tasks, watcher }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn end(self) -> History {
        self.over.store(true, Ordering::SeqCst);
        self.watcher.join().unwrap();
        for task in self.tasks {
            task.await.unwrap();
        }
        History::read(self.folder.path())
    }
}

async fn work(lock: Arc<Ours>, mut diary: Diary, over: Arc<AtomicBool>, longest: Duration, keys: Vec<String>) {
    let mut random = fastrand::Rng::new();
    while !over.load(Ordering::SeqCst) {
        let key = &keys[random.usize(..keys.len())];
        let (timeout, expire) = ([0, 100, 1000, 5000][random.usize(..4)], [300, 600, 1000][random.usize(..3)]);
        let wanted = Wanted { timeout, expire, renew: random.bool(), fenced: random.bool(), ..Wanted::default() };
        if let Some(kept) = diary.acquire(&*lock, key, wanted, None).await {
            // Most holds are short; some exceed their lease.
            let longest = if random.u32(..8) == 0 { longest } else { Duration::from_millis(60) };
            let end = now() + random.u64(..u64::try_from(longest.as_nanos()).unwrap());
            while diary.look(&kept) && now() < end {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            diary.release(kept).await;
        }
        tokio::time::sleep(Duration::from_millis(random.u64(..5))).await;
    }
}

fn found(history: &History, checks: &[Check]) -> Vec<Violation> {
    checks.iter().flat_map(|check| check(history, &BOUNDS)).collect()
}

/// The number of grants.
fn grants(history: &History) -> usize {
    history.attempts.iter().filter(|attempt| attempt.claim.is_some()).count()
}

fn granted_to(history: &History, process: &str) -> usize {
    history.attempts.iter().filter(|attempt| attempt.claim.is_some() && attempt.process == process).count()
}

/// Plays this many faults, on one server at a time; each is over before the next.
fn torment(servers: &mut Servers, count: usize, faults: usize, pause: Duration, folder: &Path) {
    let mut recorder = Recorder::new(folder, HARNESS, 0);
    let mut random = fastrand::Rng::new();
    for number in 0..faults {
        std::thread::sleep(Duration::from_millis(300));
        let (server, from) = (random.usize(..count), now());
        let kind = ["stopped", "killed", "forgetful"][number % 3];
        match kind {
            "stopped" => {
                servers.server(server).freeze();
                std::thread::sleep(Duration::from_millis(random.u64(100..2500)));
                servers.server(server).thaw();
            }
            "killed" => {
                servers.server_mut(server).kill();
                std::thread::sleep(Duration::from_millis(random.u64(100..1500)));
                servers.server_mut(server).restart();
            }
            _ => {
                servers.server_mut(server).kill();
                servers.server_mut(server).restart();
            }
        }
        recorder.note(What::Fault { kind: kind.to_owned(), target: format!("server {server}"), from });
        if kind != "stopped" {
            // Wait until it votes again.
            std::thread::sleep(MAX_LEASE + Duration::from_secs(1));
        }
        std::thread::sleep(pause);
    }
}

/// `longest` is the longest hold; `pause` is the time between the end of a fault and the next fault.
async fn tormented(count: usize, faults: usize, longest: Duration, pause: Duration, locks: Locks) -> History {
    let mut servers = Servers::start(count);
    let builders = (0..3).map(|_| LockManager::builder().url(&servers.url())).collect();
    let crowd = Crowd::start(builders, longest, locks).await;
    let path = crowd.path().to_owned();
    // The harness blocks its thread.
    let servers = tokio::task::spawn_blocking(move || {
        torment(&mut servers, count, faults, pause, &path);
        servers
    });
    let servers = servers.await.unwrap();
    let history = crowd.end().await;
    drop(servers);
    eprintln!("{faults} faults, {} grants", grants(&history));
    assert!(grants(&history) > faults * 5, "{}", grants(&history));
    history
}

fn assert_none(history: &History, violations: &[Violation]) {
    let drawn: Vec<_> = violations.iter().map(|violation| draw(history, violation)).collect();
    assert!(violations.is_empty(), "{}", drawn.join("\n"));
}

/// Contended locks. A waiting process may own such a lock on one server, so that the hold has a bare majority, and is lost with the
/// next server that loses its data.
async fn keeps_its_promises(count: usize, faults: usize, longest: Duration, pause: Duration) {
    let history = tormented(count, faults, longest, pause, Locks::Shared).await;
    let mut violations = found(&history, &[claims_never_overlap, fences_increase, acquires_return_in_time]);
    violations.extend(errors_are_true(&history, &Bounds { forgetful: true, ..BOUNDS }));
    assert_none(&history, &violations);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_exclusive_and_fencing_tokens_grow_while_one_of_three_fails() {
    keeps_its_promises(3, faults(4), LONGEST, LONGEST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_exclusive_and_fencing_tokens_grow_while_one_of_five_fails() {
    keeps_its_promises(5, faults(4), LONGEST, LONGEST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_whose_servers_fail_one_after_the_other_may_be_lost_and_not_shared() {
    keeps_its_promises(3, faults(6), VERY_LONG, Duration::ZERO).await;
}

/// Each hold sees at most one fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_nobody_else_wants_is_not_lost_while_one_of_three_fails() {
    let history = tormented(3, faults(4), LONGEST, LONGEST, Locks::OfEachTask).await;
    let all = [claims_never_overlap, fences_increase, acquires_return_in_time, errors_are_true];
    assert_none(&history, &found(&history, &all));
}

/// The managers reach different majorities: one the first two servers, the other the last two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_that_reach_different_servers_exclude_each_other() {
    let servers = Servers::start(3);
    let proxies: Vec<Vec<_>> = (0..2).map(|_| (0..3).map(|n| Proxy::unrecorded(servers.server(n))).collect()).collect();
    let builders = proxies.iter().map(|own| LockManager::builder().quorum(own.iter().map(Proxy::url))).collect();
    let crowd = Crowd::start(builders, LONGEST, Locks::Shared).await;
    let mut proxies = proxies;
    proxies[0].remove(2);
    proxies[1].remove(0);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let history = crowd.end().await;
    let violations =
        found(&history, &[claims_never_overlap, fences_increase, acquires_return_in_time, errors_are_true]);
    assert!(violations.is_empty(), "{violations:#?}");
    let shares = [granted_to(&history, "m0"), granted_to(&history, "m1")];
    eprintln!("{shares:?} grants");
    assert!(shares.iter().all(|share| *share > 5), "{shares:?}");
}

/// All managers ask for the same lock at the same time, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_managers_of_one_lock_are_all_served() {
    const ROUNDS: usize = 10;
    let servers = Servers::start(5);
    let mut managers = Vec::new();
    for _ in 0..8 {
        managers.push(LockManager::connect(&servers.url()).await.unwrap());
    }
    let inside = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let contenders = managers.iter().map(|manager| {
            let (manager, inside) = (manager.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two hold the lock");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        });
        for contender in contenders.collect::<Vec<_>>() {
            contender.await.unwrap();
        }
    }
    let each = start.elapsed() / u32::try_from(ROUNDS * managers.len()).unwrap();
    eprintln!("{each:?} a grant");
    assert!(each < Duration::from_millis(500), "{each:?}");
}

/// `FAULTS=100` plays more than the usual number.
fn faults(usually: usize) -> usize {
    std::env::var("FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
}
