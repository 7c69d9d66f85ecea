//! W8: a crowd. Up to 100,000 tasks wait for locks that are held; then these are given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::process::Usage;
use crate::stats::float;

pub(crate) async fn run<C: Contestant>(run: &Run, keys: u32, waiters: u32) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let waiters = run.size(waiters, waiters / 10);
    let keys = keys.min(run.size(10_000, 1_000));
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
    // Until everybody is in a queue: that is when nothing is to be done any more.
    let mut usage = Usage::of(std::process::id());
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = Usage::of(std::process::id());
        if now.since(&usage).seconds < 0.02 {
            break;
        }
        usage = now;
    }
    let mut outcome = Outcome::default();
    let per_waiter = |bytes: f64| bytes / f64::from(waiters);
    if let (Some(weigh), Some(before)) = (run.weigh, before.0) {
        let grown = usize::try_from(weigh().live_bytes - before).unwrap_or_default();
        outcome.set("bytes per waiter", per_waiter(float(grown)));
    }
    outcome.set("resident bytes per waiter", per_waiter(Usage::of(std::process::id()).memory - before.1));
    ready();
    let began = Instant::now();
    gate.notify_waiters();
    while let Some(joined) = holders.join_next().await {
        outcome.count(joined.unwrap_or_else(|error| Err(error.to_string())));
    }
    for task in tasks {
        outcome.count(task.await.unwrap_or_else(|error| Err(error.to_string())));
    }
    let drained = began.elapsed().as_secs_f64();
    outcome.set("waiters", f64::from(waiters));
    outcome.set("drain ms", drained * 1e3);
    outcome.set("µs per waiter", drained * 1e6 / f64::from(waiters));
    Ok(outcome)
}
