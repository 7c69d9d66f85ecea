//! W13 and W14: a lock that many tasks of one process share, as readers or with permits, and constantly want.

use std::time::Instant;

use tokio::task::{JoinSet, yield_now};

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;

const TASKS: u32 = 64;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let locks = run.size(2000, 300);
    round(&lock, locks / 10).await;
    ready();
    let began = Instant::now();
    let mut outcome = round(&lock, locks).await;
    outcome.set("µs per lock", began.elapsed().as_secs_f64() * 1e6 / f64::from(locks * TASKS));
    Ok(outcome)
}

async fn round<C: Contestant>(lock: &C, locks: u32) -> Outcome {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = lock.clone();
        tasks.spawn(async move {
            let mut outcome = Outcome::default();
            for _ in 0..locks {
                outcome.count(lock.with("shared:0", yield_now()).await);
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
