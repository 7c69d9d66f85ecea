//! Scale: locks that nobody else wants, each with its own key, spread over the masters as users' keys are.

use std::ops::Range;
use std::time::Instant;

use lock_runtime::LockManager;
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::PATIENCE;
use crate::outcome::Outcome;
use crate::stats::float;

const TASKS: u32 = 64;
/// Every master has some of them.
const WARM_UP: u32 = 1_000;

pub(crate) async fn run(run: &Run) -> Result<Outcome, String> {
    let locks = LockManager::connect(&run.url).await.map_err(|error| error.to_string())?;
    let warm_up = take(&locks, 0..WARM_UP).await;
    if let Some(problem) = warm_up.problem {
        return Err(problem);
    }
    let orders = run.size(48_000, 12_000);
    ready();
    let began = Instant::now();
    let mut outcome = take(&locks, WARM_UP..WARM_UP + orders).await;
    let count = float(usize::try_from(outcome.locks).unwrap_or_default());
    outcome.set("locks/s", count / began.elapsed().as_secs_f64());
    Ok(outcome)
}

/// The tasks divide the orders among themselves.
async fn take(locks: &LockManager, orders: Range<u32>) -> Outcome {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (locks, orders) = (locks.clone(), orders.clone());
        tasks.spawn(async move {
            let mut outcome = Outcome::default();
            for order in orders.skip(task as usize).step_by(TASKS as usize) {
                let taken = locks.lock("order", &order).timeout(PATIENCE).run(async {}).await;
                outcome.count(taken.map_err(|error| error.to_string()));
            }
            outcome
        });
    }
    let mut outcome = Outcome::default();
    while let Some(joined) = tasks.join_next().await {
        outcome.absorb(joined.unwrap_or_else(|error| Outcome::failed(error.to_string())));
    }
    outcome
}
