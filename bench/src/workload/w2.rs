//! W2: throughput without contention. As many tasks as keys, each with its own key.

use std::time::Instant;

use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::stats::float;

pub(crate) async fn run<C: Contestant>(run: &Run, keys: u32) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let pairs = run.size(64_000, 16_000) / keys;
    // Every key once: connections, tables and buffers get their size.
    let warm_up = round(&lock, keys, 1).await;
    if let Some(problem) = warm_up.problem {
        return Err(problem);
    }
    ready();
    let began = Instant::now();
    let mut outcome = round(&lock, keys, pairs).await;
    let locks = float(usize::try_from(outcome.locks).unwrap_or_default());
    outcome.set("pairs/s", locks / began.elapsed().as_secs_f64());
    Ok(outcome)
}

async fn round<C: Contestant>(lock: &C, keys: u32, pairs: u32) -> Outcome {
    let mut tasks = JoinSet::new();
    for key in 0..keys {
        let lock = lock.clone();
        tasks.spawn(async move {
            let key = format!("w:{key}");
            let mut outcome = Outcome::default();
            for _ in 0..pairs {
                outcome.count(lock.with(&key, async {}).await);
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
