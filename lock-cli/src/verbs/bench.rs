//! `lockctl bench URL`

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lock_runtime::{LockError, LockManager};
use serde::Serialize;

use crate::arguments::Bench;
use crate::failure::Failure;
use crate::output::{Output, brief, table};
use crate::place::Place;
use crate::sample::{Sample, Summary};

/// One case and its measurements. A lock and its release count as one.
#[derive(Debug, Serialize)]
struct Case {
    #[serde(rename = "case")]
    name: &'static str,
    tasks: u32,
    locks_per_second: u64,
    #[serde(flatten)]
    times: Summary,
}

/// Longer than any case takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(place: &Place, output: &Output, bench: &Bench) -> Result<ExitCode, Failure> {
    let locks = place.connect_to(bench.server.clone(), |builder| builder.default_timeout(PATIENCE)).await?;
    let other = place.connect_to(bench.server.clone(), |builder| builder.default_timeout(PATIENCE)).await?;
    let (locks, other) = (&[locks], &[other]);
    let both = [locks[0].clone(), other[0].clone()];
    let cases = [
        measure("one task, a free lock", locks, 1, false, bench.time).await?,
        measure("many tasks, each a free lock", locks, bench.tasks, false, bench.time).await?,
        measure("many tasks, one lock", locks, bench.tasks, true, bench.time).await?,
        measure("two managers, one lock", &both, bench.tasks.max(2), true, bench.time).await?,
    ];
    output.print(&cases, || {
        let micros = |micros| brief(Duration::from_micros(micros));
        let row = |case: &Case| {
            let Summary { median_us, p99_us, slowest_us, .. } = case.times;
            let speed = format!("{}/s", case.locks_per_second);
            vec![case.name.to_owned(), speed, micros(median_us), micros(p99_us), micros(slowest_us)]
        };
        table(&["CASE", "LOCKS", "MEDIAN", "99 %", "SLOWEST"], &cases.iter().map(row).collect::<Vec<_>>())
    })?;
    for manager in both {
        manager.shutdown().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Acquires and releases for a while, under names that nothing else uses.
async fn measure(
    name: &'static str,
    managers: &[LockManager],
    tasks: u32,
    is_shared: bool,
    time: Duration,
) -> Result<Case, Failure> {
    let key = format!("lockctl:bench:{}", uuid::Uuid::new_v4().simple());
    let begun = Instant::now();
    let one = |(number, manager): (u32, &LockManager)| {
        let key = if is_shared { key.clone() } else { format!("{key}:{number}") };
        again_and_again(manager.clone(), key, begun + time)
    };
    let sampled = try_join_all((0..tasks).zip(managers.iter().cycle()).map(one)).await?;
    let took = begun.elapsed().as_secs_f64();
    let mut sample = Sample::default();
    for other in sampled {
        sample.append(other);
    }
    let times = sample.summary();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a speed")]
    let locks_per_second = (times.count as f64 / took) as u64;
    Ok(Case { name, tasks, locks_per_second, times })
}

async fn again_and_again(manager: LockManager, name: String, end: Instant) -> Result<Sample, LockError> {
    let mut sample = Sample::default();
    loop {
        let begun = Instant::now();
        manager.lock_named(&name).acquire().await?.release().await?;
        sample.add(begun.elapsed());
        if Instant::now() >= end {
            return Ok(sample);
        }
    }
}
