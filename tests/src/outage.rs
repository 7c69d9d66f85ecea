//! An outage under load: many tasks keep trying locks, each on its own key, while the server is away.
//!
//! It measures what the user of a service notices: how much later than its timeout an acquire returns, how much memory and processor
//! time the tries cost, how soon locks are granted again after the server returns, and what is left over.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use lock_runtime::{LockError, LockManager};

use crate::proxy::Proxy;
use crate::server::{Calls, Server};

/// How the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The server is killed: its port refuses connections.
    Killed,
    /// The server is stopped: the kernel accepts connections and commands for it, and nothing answers.
    Stopped,
    /// A proxy in front of the server closes every connection at once.
    Closed,
    /// A proxy in front of the server accepts connections and never replies.
    Silent,
}

/// After this time a lease that was not released has expired.
const CLAIM: Duration = Duration::from_secs(3);

/// How many tasks try, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of tasks; each tries again as soon as a try returns.
    pub tasks: u64,
    /// The timeout of each try.
    pub timeout: Duration,
    /// How long the server is away.
    pub outage: Duration,
    /// The time of one row of the report.
    pub step: Duration,
    /// How long the tries continue after the server is back.
    pub after: Duration,
}

/// The server, and the proxy in front of it, if any.
#[derive(Debug)]
struct Site {
    server: Server,
    proxy: Option<Proxy>,
    kind: Kind,
}

impl Site {
    fn start(kind: Kind) -> Self {
        let server = Server::start();
        let proxy = matches!(kind, Kind::Closed | Kind::Silent).then(|| Proxy::unrecorded(&server));
        Self { server, proxy, kind }
    }

    fn url(&self) -> String {
        self.proxy.as_ref().map_or_else(|| self.server.url(), Proxy::url)
    }

    fn go_away(&mut self) {
        match (self.kind, &self.proxy) {
            (Kind::Silent, Some(proxy)) => proxy.cut_off(),
            (Kind::Stopped, _) => self.server.freeze(),
            _ => self.server.kill(),
        }
    }

    fn come_back(&mut self) {
        match (self.kind, &self.proxy) {
            (Kind::Silent, Some(proxy)) => proxy.rejoin(),
            (Kind::Stopped, _) => self.server.thaw(),
            _ => self.server.restart(),
        }
    }

    /// The locks and queues in the server.
    fn left(&self) -> usize {
        let keys: Vec<String> = self.server.ask("KEYS *");
        keys.iter().filter(|key| !key.ends_with(":fence")).count()
    }
}

/// The outcomes of the tries within a step.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// How late failed tries returned, in microseconds after their timeout, and how many were that late.
    overshoots: BTreeMap<u64, u64>,
    /// The tries that got the lock.
    pub granted: u64,
    /// The errors of the other tries.
    pub errors: BTreeMap<&'static str, u64>,
    /// The resident memory at the end of the step, in kilobytes.
    pub memory: u64,
    /// The processor time of the step.
    pub processor: Duration,
    /// The worst delay of a thread that only sleeps: that much is the machine's fault.
    pub machine: Duration,
}

impl Row {
    fn note(&mut self, took: Duration, timeout: Duration, error: &'static str) {
        let micros = u64::try_from(took.saturating_sub(timeout).as_micros()).unwrap_or(u64::MAX);
        // In tenths of a millisecond, to bound this map.
        *self.overshoots.entry(micros / 100 * 100).or_default() += 1;
        *self.errors.entry(error).or_default() += 1;
    }

    /// How many tries failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.overshoots.values().sum()
    }

    /// A percentile of the failed tries' overshoot.
    #[must_use]
    pub fn overshoot(&self, percent: u64) -> Duration {
        let (wanted, mut seen) = ((self.failed() * percent).div_ceil(100), 0);
        let micros = self.overshoots.iter().find_map(|(micros, count)| {
            seen += count;
            (seen >= wanted).then_some(*micros)
        });
        Duration::from_micros(micros.unwrap_or_default())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (granted, failed) = (self.granted, self.failed());
        let [half, most, all] = [50, 99, 100].map(|percent| self.overshoot(percent));
        let (memory, processor) = (self.memory / 1024, self.processor);
        write!(
            f,
            "{granted:>7} granted {failed:>7} failed, overshoot p50 {half:>8.1?} p99 {most:>8.1?} max {all:>8.1?}"
        )?;
        write!(f, ", rss {memory:>4} MB, cpu {processor:>8.2?}, machine {:>8.1?}, {:?}", self.machine, self.errors)
    }
}

/// What an outage cost.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each step of the outage.
    pub rows: Vec<Row>,
    /// From the server's return to the first lock that was granted.
    pub first_grant: Duration,
    /// From the server's return to the last try that failed.
    pub last_failure: Duration,
    /// Locks and queues in the server once every claim has had time to expire.
    pub left: usize,
    /// The server's commands (since its return, if it was killed) until the last try.
    pub calls: Calls,
    /// How long the shutdown took.
    pub shutdown: Duration,
}

struct Tally {
    row: Mutex<Row>,
    next_key: AtomicU64,
    is_over: AtomicBool,
    /// When a lock was first granted after the server's return, and when a try last failed.
    first_grant: Mutex<Option<Instant>>,
    last_failure: Mutex<Option<Instant>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the server away under load, then brings it back; calls `tell` with each complete row.
pub async fn outage(kind: Kind, load: &Load, mut tell: impl FnMut(&Row)) -> Report {
    let mut site = Site::start(kind);
    let locks = LockManager::connect(&site.url()).await.unwrap();
    let tally = Arc::new(Tally {
        row: Mutex::default(),
        next_key: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        first_grant: Mutex::default(),
        last_failure: Mutex::default(),
    });
    let tasks: Vec<_> =
        (0..load.tasks).map(|_| tokio::spawn(tries(locks.clone(), Arc::clone(&tally), *load))).collect();
    let looking = Arc::clone(&tally);
    let machine = std::thread::spawn(move || look_at_machine(&looking));
    tokio::time::sleep(Duration::from_millis(500)).await;
    site.go_away();
    *locked(&tally.row) = Row::default();
    let mut report = Report::default();
    let begin = Instant::now();
    let mut before = processor_time();
    while begin.elapsed() + load.step / 2 < load.outage {
        tokio::time::sleep(load.step).await;
        let mut row = std::mem::take(&mut *locked(&tally.row));
        let now = processor_time();
        row.memory = resident_kilobytes();
        row.processor = now.saturating_sub(before);
        before = now;
        tell(&row);
        report.rows.push(row);
    }
    let back = Instant::now();
    *locked(&tally.first_grant) = None;
    site.come_back();
    tokio::time::sleep(load.after).await;
    tally.is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    machine.join().unwrap();
    let since = |instant: &Mutex<Option<Instant>>| {
        locked(instant).map_or(Duration::ZERO, |at| at.saturating_duration_since(back))
    };
    report.first_grant = since(&tally.first_grant);
    report.last_failure = since(&tally.last_failure);
    report.calls = site.server.commandstats();
    tokio::time::sleep(CLAIM).await;
    report.left = site.left();
    let begin = Instant::now();
    locks.shutdown().await;
    report.shutdown = begin.elapsed();
    report
}

async fn tries(locks: LockManager, tally: Arc<Tally>, load: Load) {
    while !tally.is_over.load(Ordering::SeqCst) {
        let key = tally.next_key.fetch_add(1, Ordering::Relaxed);
        let begin = Instant::now();
        match locks.lock("outage", &key).timeout(load.timeout).acquire().await {
            Ok(guard) => {
                locked(&tally.row).granted += 1;
                locked(&tally.first_grant).get_or_insert_with(Instant::now);
                let _ = guard.release().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => {
                let took = begin.elapsed();
                locked(&tally.row).note(took, load.timeout, name(&error));
                *locked(&tally.last_failure) = Some(Instant::now());
            }
        }
    }
}

/// Records how late this machine runs threads; the tries suffer from that, too.
fn look_at_machine(tally: &Tally) {
    const LOOK: Duration = Duration::from_millis(5);
    while !tally.is_over.load(Ordering::SeqCst) {
        let begin = Instant::now();
        std::thread::sleep(LOOK);
        let late = begin.elapsed().saturating_sub(LOOK);
        let mut row = locked(&tally.row);
        row.machine = row.machine.max(late);
    }
}

fn name(error: &LockError) -> &'static str {
    match error {
        LockError::Timeout { .. } => "busy",
        LockError::Backend { .. } | LockError::Connect { .. } => "unreachable",
        _ => "other",
    }
}

/// The processor time of this process so far.
#[must_use]
pub fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("the process's state");
    let (_, fields) = text.rsplit_once(')').expect("a name in brackets");
    // User and system time in ticks: Linux reports a hundred per second, whatever it counts internally.
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or_default()).sum();
    Duration::from_millis(ticks * 10)
}

/// The resident memory of this process.
#[must_use]
pub fn resident_kilobytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("the process's state");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident memory");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
