//! W10: sticky keys. One process locks a thousand keys again and again, some of them much more often than others (Zipf's law). Its
//! tasks pause between their holds, so hardly any task waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::stats::{Sample, float};

const KEYS: usize = 1000;
const TASKS: u32 = 64;
/// The longest pause, in milliseconds: even the first key is free most of the time.
const PAUSE: u64 = 40;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    for key in 0..TASKS {
        lock.with(&format!("warm:{key}"), async {}).await?;
    }
    let shares = Arc::new(shares());
    let locks = run.size(300, 100);
    ready();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (lock, shares) = (lock.clone(), Arc::clone(&shares));
        let random = Rng::with_seed((u64::from(run.round) << 32) + u64::from(task));
        tasks.spawn(async move { locking(&lock, &shares, locks, random).await });
    }
    let (mut outcome, mut micros) = (Outcome::default(), Vec::new());
    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok((part, took)) => {
                outcome.absorb(part);
                micros.extend(took);
            }
            Err(error) => outcome.absorb(Outcome::failed(error.to_string())),
        }
    }
    outcome.set("µs per lock", micros.iter().sum::<f64>() / float(micros.len()));
    let sample = Sample::new(micros);
    outcome.set("p50 µs", sample.median());
    outcome.set("p99 µs", sample.quantile(0.99));
    Ok(outcome)
}

/// One task, and how long each of its locks took.
async fn locking<C: Contestant>(lock: &C, shares: &[f64], locks: u32, mut random: Rng) -> (Outcome, Vec<f64>) {
    let (mut outcome, mut micros) = (Outcome::default(), Vec::new());
    for _ in 0..locks {
        sleep(Duration::from_millis(random.u64(0..=PAUSE))).await;
        let drawn = random.f64();
        let key = format!("w10:{}", shares.partition_point(|share| *share < drawn));
        let began = Instant::now();
        outcome.count(lock.with(&key, async {}).await);
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    (outcome, micros)
}

/// The cumulative share of locks up to each key: the n-th key has a share of 1 / n.
fn shares() -> Vec<f64> {
    let all: f64 = (1..=KEYS).map(|rank| 1.0 / float(rank)).sum();
    let mut sum = 0.0;
    let add = |rank: usize| {
        sum += 1.0 / float(rank) / all;
        sum
    };
    (1..=KEYS).map(add).collect()
}
