//! W14, busy: fifty tasks constantly want the permits of one key, and hold one for a millisecond. What share of the permits is used?

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::w5::BODY;
use crate::child::{Run, ready};
use crate::contestant::{Contestant, PERMITS};
use crate::outcome::Outcome;

const TASKS: u32 = 50;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let time = Duration::from_millis(run.size(2000, 800).into());
    lock.with("warm:0", async {}).await?;
    let inside = Arc::new(AtomicU32::new(0));
    ready();
    let (began, end) = (Instant::now(), tokio::time::Instant::now() + time);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS / run.case.processes {
        tasks.spawn(task(lock.clone(), Arc::clone(&inside), end));
    }
    let (mut outcome, mut held) = (Outcome::default(), 0.0);
    while let Some(joined) = tasks.join_next().await {
        let (part, inside) = joined.map_err(|error| error.to_string())?;
        outcome.absorb(part);
        held += inside;
    }
    outcome.set("span s", began.elapsed().as_secs_f64());
    outcome.set("held s", held);
    Ok(outcome)
}

/// One task, and for how many seconds it had a permit. The last hold may go on beyond the end, which counts on both sides.
async fn task<C: Contestant>(lock: C, inside: Arc<AtomicU32>, end: tokio::time::Instant) -> (Outcome, f64) {
    let (mut outcome, mut held) = (Outcome::default(), 0.0);
    while tokio::time::Instant::now() < end {
        let inside = Arc::clone(&inside);
        let body = async move {
            let (entered, others) = (Instant::now(), inside.fetch_add(1, Ordering::SeqCst));
            // The runtime's own timer would turn one millisecond into two.
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(BODY)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            (entered.elapsed().as_secs_f64(), others >= PERMITS)
        };
        let Ok(result) = tokio::time::timeout_at(end, lock.with("w14:0", body)).await else { break };
        if let Some((took, is_one_too_many)) = outcome.count(result) {
            held += took;
            outcome.overlaps += u64::from(is_one_too_many);
        }
    }
    (outcome, held)
}

/// The conclusions over all tasks of all processes.
pub(crate) fn conclude(outcome: &mut Outcome) {
    let (span, held) = (outcome.get("span s").unwrap_or_default(), outcome.get("held s").unwrap_or_default());
    outcome.set("permits in use, %", held / (span * f64::from(PERMITS)) * 100.0);
}
