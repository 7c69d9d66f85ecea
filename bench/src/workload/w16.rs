//! W16: fairness between readers and writers. Fifty readers and two writers constantly want one key, and hold it for a
//! millisecond.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::w5::BODY;
use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::stats::float;

const READERS: u32 = 50;
const WRITERS: u32 = 2;

/// The measurements of one task.
#[derive(Debug, Default)]
struct Task {
    outcome: Outcome,
    is_writer: bool,
    /// The longest wait in seconds, including the last one.
    longest: f64,
}

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let time = Duration::from_millis(run.size(3000, 800).into());
    lock.with("warm:0", async {}).await?;
    ready();
    let (began, end) = (Instant::now(), tokio::time::Instant::now() + time);
    let mut tasks = JoinSet::new();
    for number in 0..(READERS + WRITERS) / run.case.processes {
        tasks.spawn(task(lock.clone(), number < WRITERS / run.case.processes, end));
    }
    let (mut outcome, mut longest) = (Outcome::default(), [0.0_f64; 2]);
    while let Some(joined) = tasks.join_next().await {
        let task = joined.map_err(|error| error.to_string())?;
        outcome.shares.push(float(usize::try_from(task.outcome.locks).unwrap_or_default()));
        outcome.absorb(task.outcome);
        let [of_readers, of_writers] = &mut longest;
        let longest = if task.is_writer { of_writers } else { of_readers };
        *longest = longest.max(task.longest);
    }
    let [of_readers, of_writers] = longest;
    outcome.set("span s", began.elapsed().as_secs_f64());
    outcome.set("longest wait of a reader ms", of_readers * 1e3);
    outcome.set("longest wait of a writer ms", of_writers * 1e3);
    Ok(outcome)
}

async fn task<C: Contestant>(lock: C, is_writer: bool, end: tokio::time::Instant) -> Task {
    let mut task = Task { is_writer, ..Task::default() };
    while tokio::time::Instant::now() < end {
        let asked = Instant::now();
        let body = async move {
            let entered = Instant::now();
            // The runtime's own timer would turn one millisecond into two.
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(BODY)).await;
            entered
        };
        let locked =
            async { if is_writer { lock.with_as_writer("w16:0", body).await } else { lock.with("w16:0", body).await } };
        let Ok(result) = tokio::time::timeout_at(end, locked).await else {
            task.longest = task.longest.max(asked.elapsed().as_secs_f64());
            break;
        };
        if let Some(entered) = task.outcome.count(result) {
            task.longest = task.longest.max((entered - asked).as_secs_f64());
        }
    }
    task
}

/// The conclusions over all tasks of all processes. `longest` has each process's longest waits, of readers and of writers.
pub(crate) fn conclude(outcome: &mut Outcome, longest: [f64; 2]) {
    let locks: f64 = outcome.shares.iter().sum();
    let span = outcome.get("span s").unwrap_or_default();
    let cycle = f64::from(READERS + WRITERS) * span * 1e3 / locks;
    let [of_readers, of_writers] = longest;
    outcome.set("locks/s", locks / span);
    outcome.set("a writer's longest wait / cycle", of_writers / cycle);
    outcome.set("a reader's longest wait / cycle", of_readers / cycle);
}
