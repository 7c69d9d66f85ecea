//! W1: the cost of a lock that nobody else wants. One task takes and releases one key, again and again.

use std::time::Instant;

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::stats::{Sample, float};

const WARM_UP: u32 = 300;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    // A task, as in a service: a future that the runtime's caller awaits would run on a thread outside the workers.
    tokio::spawn(pairs(lock, run.clone())).await.map_err(|error| error.to_string())?
}

async fn pairs<C: Contestant>(lock: C, run: Run) -> Result<Outcome, String> {
    for _ in 0..WARM_UP {
        lock.with("w1:0", async {}).await?;
    }
    let pairs = run.size(10_000, 3_000);
    let mut outcome = Outcome::default();
    let mut micros = Vec::with_capacity(pairs as usize);
    ready();
    let before = run.weigh.map(|weigh| weigh());
    let began = Instant::now();
    for _ in 0..pairs {
        let started = Instant::now();
        outcome.count(lock.with("w1:0", async {}).await);
        micros.push(started.elapsed().as_secs_f64() * 1e6);
    }
    outcome.set("µs per pair", began.elapsed().as_secs_f64() * 1e6 / f64::from(pairs));
    if let (Some(weigh), Some(before)) = (run.weigh, before) {
        let allocations = weigh().allocations - before.allocations;
        outcome.set("allocations per pair", float(allocations) / f64::from(pairs));
    }
    let sample = Sample::new(micros);
    outcome.set("p50 µs", sample.median());
    outcome.set("p99 µs", sample.quantile(0.99));
    Ok(outcome)
}
