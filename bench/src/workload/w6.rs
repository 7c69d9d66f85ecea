//! W6: hand-off. Two processes alternate on one key; how long after the end of one hold does the other begin?

use std::time::{Duration, Instant};

use crate::child::{Run, nanos};
use crate::contestant::{Contestant, connect_raw};
use crate::outcome::Outcome;
use crate::stats::Sample;

/// Long enough for the other process to be in the queue again.
const BODY: Duration = Duration::from_micros(500);

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let mut connection = connect_raw(&run.url).await?;
    lock.with("warm:0", async {}).await?;
    let mut pings = Vec::new();
    for _ in 0..run.size(2000, 500) {
        let began = Instant::now();
        redis::cmd("PING").exec_async(&mut connection).await.map_err(|error| error.to_string())?;
        pings.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let mut outcome = Outcome::default();
    outcome.set("PING µs", Sample::new(pings).median());
    run.ready();
    let end = Instant::now() + Duration::from_millis(run.size(3000, 800).into());
    while Instant::now() < end {
        let body = async {
            let entered = nanos();
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(BODY)).await;
            (entered, nanos())
        };
        if let Some(hold) = outcome.count(lock.with("w6:0", body).await) {
            outcome.holds.push(hold);
        }
    }
    Ok(outcome)
}

/// The time between holds of different processes.
pub(crate) fn conclude(outcome: &mut Outcome, parts: &[Vec<(u64, u64)>]) {
    let mut holds: Vec<(u64, u64, usize)> = Vec::new();
    for (part, of_part) in parts.iter().enumerate() {
        holds.extend(of_part.iter().map(|(began, ended)| (*began, *ended, part)));
    }
    holds.sort_unstable();
    let mut gaps = Vec::new();
    for pair in holds.windows(2) {
        let [(_, ended, before), (began, _, after)] = pair else { continue };
        if began < ended {
            outcome.overlaps += 1;
        } else if before != after {
            gaps.push(Duration::from_nanos(began - ended).as_secs_f64() * 1e6);
        }
    }
    let alternating = crate::stats::float(gaps.len()) / crate::stats::float(holds.len().max(1));
    let gaps = Sample::new(gaps);
    outcome.set("hand-off µs", gaps.median());
    outcome.set("p99 µs", gaps.quantile(0.99));
    outcome.set("× PING", gaps.median() / outcome.get("PING µs").unwrap_or(f64::NAN));
    outcome.set("alternating", alternating);
    outcome.holds.clear();
}
