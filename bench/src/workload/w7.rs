//! W7: many leases at rest. One process holds them with a lease of 30 s and renews them.

use std::time::Duration;

use lock_runtime::LockManager;
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::outcome::Outcome;
use crate::process::Usage;
use crate::stats::float;

const TASKS: u32 = 64;
/// Seconds: a third of the lease.
const RENEWED_EVERY: f64 = 10.0;

pub(crate) async fn run(run: &Run) -> Result<Outcome, String> {
    let locks = LockManager::connect(&run.url).await.map_err(|error| error.to_string())?;
    locks.lock("warm", &0_u32).run(async {}).await.map_err(|error| error.to_string())?;
    let holds = run.size(100_000, 10_000);
    let before = (run.weigh.map(|weigh| weigh().live_bytes), Usage::of(std::process::id()).memory);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mut guards = Vec::with_capacity((holds / TASKS + 1) as usize);
            for key in (task..holds).step_by(TASKS as usize) {
                guards.push(locks.lock("w7", &key).acquire().await);
            }
            guards
        });
    }
    let mut outcome = Outcome::default();
    let mut guards = Vec::with_capacity(holds as usize);
    while let Some(joined) = tasks.join_next().await {
        for guard in joined.map_err(|error| error.to_string())? {
            guards.extend(outcome.count(guard.map_err(|error| error.to_string())));
        }
    }
    // By then the claims are confirmed, and the first renewals are not due yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let per_hold = |bytes: f64| bytes / f64::from(holds);
    if let (Some(weigh), Some(before)) = (run.weigh, before.0) {
        outcome
            .set("bytes per hold", per_hold(float(usize::try_from(weigh().live_bytes - before).unwrap_or_default())));
    }
    let grown = Usage::of(std::process::id()).memory - before.1;
    outcome.set("resident bytes per hold", per_hold(grown));
    ready();
    let began = Usage::of(std::process::id());
    let time = if run.weigh.is_some() { 0.1 } else { f64::from(run.size(30, 11)) };
    tokio::time::sleep(Duration::from_secs_f64(time)).await;
    let used = Usage::of(std::process::id()).since(&began);
    outcome.set("% of a core", used.seconds / time * 100.0);
    let renewals = f64::from(holds) / 100.0 * time / RENEWED_EVERY;
    outcome.set("wake-ups per 100 leases", used.wakeups / renewals);
    outcome.set("hundreds renewed", renewals);
    outcome.set("span s", time);
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    if lost > 0 {
        outcome.failures += u64::try_from(lost).unwrap_or_default();
        outcome.problem = Some(format!("{lost} of {holds} leases were lost"));
    }
    // The process ends without releasing: the server is emptied after every run.
    std::mem::forget(guards);
    Ok(outcome)
}
