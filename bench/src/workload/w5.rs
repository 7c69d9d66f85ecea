//! W5: fairness. Fifty tasks constantly want one key, and hold it for a millisecond.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::arena::Arena;
use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::stats::{float, jain};

const TASKS: u32 = 50;
pub(super) const BODY: Duration = Duration::from_millis(1);

/// The measurements of one task.
#[derive(Debug, Default)]
struct Task {
    outcome: Outcome,
    /// Seconds inside.
    held: f64,
    /// The longest wait in seconds, including the last one.
    longest: f64,
}

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let time = Duration::from_millis(run.size(3000, 800).into());
    lock.with("warm:0", async {}).await?;
    let arena = Arena::new(1);
    ready();
    let (began, end) = (Instant::now(), tokio::time::Instant::now() + time);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS / run.case.processes {
        tasks.spawn(task(lock.clone(), arena.clone(), end));
    }
    let (mut outcome, mut held, mut longest) = (Outcome::default(), 0.0, 0.0_f64);
    while let Some(joined) = tasks.join_next().await {
        let task = joined.map_err(|error| error.to_string())?;
        outcome.shares.push(float(usize::try_from(task.outcome.locks).unwrap_or_default()));
        outcome.absorb(task.outcome);
        held += task.held;
        longest = longest.max(task.longest);
    }
    outcome.overlaps += arena.overlaps();
    outcome.set("span s", began.elapsed().as_secs_f64());
    outcome.set("held s", held);
    outcome.set("longest wait ms", longest * 1e3);
    Ok(outcome)
}

async fn task<C: Contestant>(lock: C, arena: Arena, end: tokio::time::Instant) -> Task {
    let mut task = Task::default();
    while tokio::time::Instant::now() < end {
        let (asked, arena) = (Instant::now(), arena.clone());
        let body = async move {
            let (entered, _inside) = (Instant::now(), arena.enter(0));
            // The runtime's own timer would turn one millisecond into two.
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(BODY)).await;
            (entered, entered.elapsed().as_secs_f64())
        };
        let Ok(result) = tokio::time::timeout_at(end, lock.with("w5:0", body)).await else {
            task.longest = task.longest.max(asked.elapsed().as_secs_f64());
            break;
        };
        if let Some((entered, held)) = task.outcome.count(result) {
            task.longest = task.longest.max((entered - asked).as_secs_f64());
            task.held += held;
        }
    }
    task
}

/// The conclusions over all tasks of all processes; `processes` has the number of locks of each process.
pub(crate) fn conclude(outcome: &mut Outcome, processes: &[f64]) {
    let locks: f64 = outcome.shares.iter().sum();
    let (span, held) = (outcome.get("span s").unwrap_or_default(), outcome.get("held s").unwrap_or_default());
    let longest = outcome.get("longest wait ms").unwrap_or_default();
    let cycle = f64::from(TASKS) * span * 1e3 / locks;
    outcome.set("locks/s", locks / span);
    outcome.set("nobody inside, %", (span - held) / span * 100.0);
    outcome.set("Jain", jain(&outcome.shares));
    outcome.set("Jain of processes", jain(processes));
    outcome.set("longest wait / cycle", longest / cycle);
}
