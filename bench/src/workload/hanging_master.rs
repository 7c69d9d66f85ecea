//! A master hangs: what does that cost the locks of the others? The process has used the hanging master before, has leases
//! there, and has tasks that keep trying to lock keys there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::Who;
use crate::outcome::Outcome;
use crate::servers::is_on_last;
use crate::stats::{Sample, float};

const MASTERS: usize = 3;
/// Measured tasks, each with its own key on the masters that are up.
const MEASURED: usize = 4;
/// A round is short, and sees the other master hang for the first time or for longer: commands stay unanswered, after
/// half a second it is in doubt, after a second its connections are given up and made again.
const SPAN: Duration = Duration::from_millis(300);
const AGES_MS: [u64; 5] = [0, 400, 800, 1200, 1600];
const WARM_UP: Duration = Duration::from_millis(150);
/// Leases of each kind on the third master: of the default length, and so short that one of them is always being renewed.
const LEASES: usize = 8;
const SHORT: Duration = Duration::from_millis(450);
/// Tasks that want locks on the third master, two for each key.
const WANTING: usize = 16;
/// How long such a task waits for a lock; every other one only tries.
const TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn run(run: &Run) -> Result<Outcome, String> {
    let locks = LockManager::connect(&run.url).await.map_err(|error| error.to_string())?;
    let mut wanted = orders(true);
    let leases = hold(&locks, wanted.by_ref().take(2 * LEASES)).await?;
    measure(&locks, WARM_UP).await;
    ready();
    let granted = Arc::new(AtomicBool::new(false));
    let mut wanting = JoinSet::new();
    if run.who == Who::OneHangs {
        let keys: Vec<u32> = wanted.take(WANTING / 2).collect();
        for (task, order) in keys.iter().chain(&keys).enumerate() {
            wanting.spawn(want(locks.clone(), *order, task.is_multiple_of(2), Arc::clone(&granted)));
        }
    }
    // Even if nothing hangs: a process that has just worked differs from one that has slept.
    let age = AGES_MS.into_iter().cycle().nth(run.round as usize).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(age)).await;
    let mut outcome = measure(&locks, SPAN).await;
    if granted.load(Ordering::Relaxed) {
        outcome.failures += 1;
        outcome.problem.get_or_insert("the third master did not hang".to_owned());
    }
    // The process ends without releasing: the servers are emptied after every run.
    std::mem::forget(leases);
    Ok(outcome)
}

/// Orders whose locks are on the third master, or on the others.
fn orders(third: bool) -> impl Iterator<Item = u32> {
    (0..).filter(move |order| is_on_last(&format!("order:{order}"), MASTERS) == third)
}

/// Takes leases: first long ones, then as many short ones.
async fn hold(locks: &LockManager, orders: impl Iterator<Item = u32>) -> Result<Vec<LockGuard>, String> {
    let mut guards = Vec::new();
    for order in orders {
        let request = locks.lock("order", &order);
        let request = if guards.len() < LEASES { request } else { request.expire(SHORT).renew(true) };
        guards.push(request.acquire().await.map_err(|error| error.to_string())?);
    }
    Ok(guards)
}

/// Takes and releases locks of the masters that are up.
async fn measure(locks: &LockManager, span: Duration) -> Outcome {
    let end = Instant::now() + span;
    let mut tasks = JoinSet::new();
    for order in orders(false).take(MEASURED) {
        let locks = locks.clone();
        tasks.spawn(async move {
            let (mut outcome, mut micros) = (Outcome::default(), Vec::new());
            while Instant::now() < end {
                let started = Instant::now();
                outcome.count(locks.lock("order", &order).run(async {}).await.map_err(|error| error.to_string()));
                micros.push(started.elapsed().as_secs_f64() * 1e6);
            }
            (outcome, micros)
        });
    }
    let (mut outcome, mut micros) = (Outcome::default(), Vec::new());
    while let Some(joined) = tasks.join_next().await {
        let (of_task, micros_of_task) = joined.unwrap_or_else(|error| (Outcome::failed(error.to_string()), Vec::new()));
        outcome.absorb(of_task);
        micros.extend(micros_of_task);
    }
    outcome.set("locks/s", float(micros.len()) / span.as_secs_f64());
    let sample = Sample::new(micros);
    for (name, part) in [("p50 µs", 0.5), ("p99 µs", 0.99), ("p99.9 µs", 0.999)] {
        outcome.set(name, sample.quantile(part));
    }
    outcome
}

async fn want(locks: LockManager, order: u32, once: bool, granted: Arc<AtomicBool>) {
    loop {
        let request = locks.lock("order", &order).timeout(if once { Duration::ZERO } else { TIMEOUT });
        granted.fetch_or(request.run(async {}).await.is_ok(), Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}
