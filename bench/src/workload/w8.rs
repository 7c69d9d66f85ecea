//! W8: a crowd. Up to 100,000 tasks wait for held locks; then the locks are released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::process::Usage;
use crate::stats::float;

/// Crowds of this many quarters of the whole, each with its own connections and tables.
pub(crate) const QUARTERS: [u32; 4] = [1, 2, 3, 4];

/// What a waiter costs in the whole crowd, as a multiple of its cost in a quarter.
pub(crate) const GROWTH: &str = "per waiter, whole crowd / a quarter";

/// The time to serve a crowd of this many quarters, as a multiple of the time for one quarter.
pub(crate) fn drain_of(quarters: u32) -> String {
    format!("drain of {quarters} / 4, to that of 1 / 4")
}

pub(crate) async fn run<C: Contestant>(run: &Run, keys: u32, waiters: u32) -> Result<Outcome, String> {
    let waiters = run.size(waiters, waiters / 4);
    let keys = keys.min(run.size(10_000, 1_000));
    let mut outcome = Outcome::default();
    // The first crowd is weighed but not timed: all the others then find memory that the process has used before.
    crowd(&C::connect(&run.url).await?, run, keys, waiters, &mut outcome).await?;
    outcome.locks = 0;
    ready();
    if run.weigh.is_some() {
        return Ok(outcome);
    }
    let (mut one, mut whole) = (f64::NAN, f64::NAN);
    for quarters in QUARTERS {
        let mut one_crowd = Outcome::default();
        whole = crowd(&C::connect(&run.url).await?, run, keys, waiters / 4 * quarters, &mut one_crowd).await?;
        // Counts add up; values that are set already stay.
        outcome.absorb(one_crowd);
        if quarters == 1 {
            one = whole;
        }
        outcome.set(&drain_of(quarters), whole / one);
    }
    outcome.set("waiters", f64::from(waiters));
    outcome.set("µs per waiter", whole * 1e6 / f64::from(waiters));
    outcome.set(GROWTH, whole / one / 4.0);
    Ok(outcome)
}

/// The seconds from the end of the first holds to the end of the last.
async fn crowd<C: Contestant>(
    lock: &C,
    run: &Run,
    keys: u32,
    waiters: u32,
    outcome: &mut Outcome,
) -> Result<f64, String> {
    let gate = Arc::new(Notify::new());
    let inside = Arc::new(Semaphore::new(0));
    let mut holders = JoinSet::new();
    for key in 0..keys {
        let (lock, opened, inside) = (lock.clone(), Arc::clone(&gate), Arc::clone(&inside));
        holders.spawn(async move {
            let body = async move {
                let open = opened.notified();
                inside.add_permits(1);
                open.await;
            };
            lock.with(&format!("w8:{key}"), body).await
        });
    }
    tokio::select! {
        _ = inside.acquire_many(keys) => {}
        // Nobody leaves before the gate is opened.
        Some(left) = holders.join_next() => return Err(format!("a holder did not hold: {left:?}")),
    }
    let before = (run.weigh.map(|weigh| weigh().live_bytes), Usage::of(std::process::id()).memory);
    let mut tasks: Vec<tokio::task::JoinHandle<Result<(), String>>> = Vec::with_capacity(waiters as usize);
    for waiter in 0..waiters {
        let lock = lock.clone();
        tasks.push(tokio::spawn(async move {
            let key = format!("w8:{}", waiter % keys);
            lock.with(&key, async {}).await
        }));
    }
    all_wait().await;
    let per_waiter = |bytes: f64| bytes / f64::from(waiters);
    if let (Some(weigh), Some(before)) = (run.weigh, before.0) {
        let grown = usize::try_from(weigh().live_bytes - before).unwrap_or_default();
        outcome.set("bytes per waiter", per_waiter(float(grown)));
    }
    outcome.set("resident bytes per waiter", per_waiter(Usage::of(std::process::id()).memory - before.1));
    let began = Instant::now();
    gate.notify_waiters();
    while let Some(joined) = holders.join_next().await {
        outcome.count(joined.unwrap_or_else(|error| Err(error.to_string())));
    }
    for task in tasks {
        outcome.count(task.await.unwrap_or_else(|error| Err(error.to_string())));
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Waits until all tasks are in a queue: then nothing is left to do.
async fn all_wait() {
    let mut usage = Usage::of(std::process::id());
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = Usage::of(std::process::id());
        if now.since(&usage).seconds < 0.01 {
            return;
        }
        usage = now;
    }
}
