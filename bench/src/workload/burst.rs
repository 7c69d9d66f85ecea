//! A burst: many tasks each lock their own key at one moment. Then 2,000 tasks at a time do the same work.

use std::sync::Arc;
use std::time::Instant;

use lock_runtime::LockManager;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::{PATIENCE, Who};
use crate::outcome::Outcome;
use crate::process::Usage;

const AT_A_TIME: u32 = 2_000;

pub(crate) async fn run(run: &Run, tasks: u32) -> Result<Outcome, String> {
    let locks = LockManager::connect(&run.url).await.map_err(|error| error.to_string())?;
    let tasks = run.size(tasks, tasks / 4);
    let groups = if run.who == Who::AtOnce { tasks } else { AT_A_TIME };
    ready();
    let before = Usage::of(std::process::id()).memory;
    let began = Instant::now();
    let mut outcome = lock_all(&locks, tasks, groups).await;
    outcome.set("locks/s", f64::from(tasks) / began.elapsed().as_secs_f64());
    outcome.set("resident bytes per task", (Usage::of(std::process::id()).memory - before) / f64::from(tasks));
    // When a connection is given up, everything on its way is sent again.
    let reconnects = u32::try_from(locks.stats().reconnects).unwrap_or(u32::MAX);
    outcome.set("reconnects", f64::from(reconnects));
    Ok(outcome)
}

async fn lock_all(locks: &LockManager, tasks: u32, at_a_time: u32) -> Outcome {
    let gate = Arc::new(Semaphore::new(at_a_time as usize));
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (locks, gate) = (locks.clone(), Arc::clone(&gate));
        running.spawn(async move {
            let _permit = gate.acquire().await;
            let taken = locks.lock("burst", &task).timeout(PATIENCE).run(async {}).await;
            taken.map_err(|error| error.to_string())
        });
    }
    let mut outcome = Outcome::default();
    while let Some(joined) = running.join_next().await {
        outcome.count(joined.unwrap_or_else(|error| Err(error.to_string())));
    }
    outcome
}
