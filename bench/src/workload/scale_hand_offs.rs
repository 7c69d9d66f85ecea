//! Scale: two processes pass many keys back and forth, with one task in each process for every key.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tokio::task::JoinSet;

use super::w6::FOLLOWED;
use crate::child::{Run, nanos, ready};
use crate::contestant::PATIENCE;
use crate::hand_off::HandOffs;
use crate::outcome::Outcome;
use crate::stats::float;

const KEYS: u32 = 32;
/// Long enough for the other process to be in the queue again.
const BODY: Duration = Duration::from_millis(1);

pub(crate) async fn run(run: &Run) -> Result<Outcome, String> {
    let locks = LockManager::connect(&run.url).await.map_err(|error| error.to_string())?;
    for order in 0..KEYS {
        let warm = locks.lock("order", &order).timeout(PATIENCE).run(async {}).await;
        warm.map_err(|error| error.to_string())?;
    }
    let span = Duration::from_millis(run.size(1500, 800).into());
    ready();
    let end = Instant::now() + span;
    let mut tasks = JoinSet::new();
    for order in 0..KEYS {
        let locks = locks.clone();
        tasks.spawn(async move { (order, pass(&locks, order, end).await) });
    }
    let mut outcome = Outcome { holds: vec![Vec::new(); KEYS as usize], ..Outcome::default() };
    while let Some(joined) = tasks.join_next().await {
        let (order, of_task) = joined.map_err(|error| error.to_string())?;
        if let Some(holds) = outcome.holds.get_mut(order as usize) {
            holds.extend(of_task.holds.iter().flatten());
        }
        outcome.absorb(Outcome { holds: Vec::new(), ..of_task });
    }
    outcome.set("passing s", span.as_secs_f64());
    Ok(outcome)
}

async fn pass(locks: &LockManager, order: u32, end: Instant) -> Outcome {
    let (mut outcome, mut holds) = (Outcome::default(), Vec::new());
    while Instant::now() < end {
        let body = async {
            let entered = nanos();
            tokio::time::sleep(BODY).await;
            (entered, nanos())
        };
        let held = locks.lock("order", &order).timeout(PATIENCE).run(body).await;
        holds.extend(outcome.count(held.map_err(|error| error.to_string())));
    }
    outcome.holds.push(holds);
    outcome
}

/// How often a key was passed on, and how long that took.
pub(crate) fn conclude(outcome: &mut Outcome, processes: &[Vec<Vec<(u64, u64)>>]) {
    let HandOffs { micros, count, followed, overlaps } = HandOffs::of(processes);
    outcome.overlaps += overlaps;
    outcome.set("hand-off µs", micros.median());
    outcome.set("hand-offs", float(count));
    outcome.set("hand-offs/s", float(count) / outcome.get("passing s").unwrap_or(f64::NAN));
    outcome.set(FOLLOWED, followed * 100.0);
    outcome.holds.clear();
}
