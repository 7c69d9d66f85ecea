//! A takeover: the process that holds the lock is killed, and exactly one of many waiters in other processes gets it.
//!
//! `cargo run --example takeover`, then again with `--no-lock`. It kills processes, and processes share a lock through a
//! server: `--redis URL`, or a redis-server on the PATH.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use examples::{Defaults, Failure, Options, Outcome, Process, Report, Run, Workers, take_part, tell};
use lock_runtime::{LockError, LockManager, cache_lock};

/// How long a crashed process keeps the others out.
const LEASE: Duration = Duration::from_secs(2);
/// How long the waiters have been in the queue when the holder is killed.
const QUEUEING: Duration = Duration::from_millis(500);
/// How long each waits at most: far longer than it takes one of them to get in.
const PATIENCE: Duration = Duration::from_secs(5);
/// The product's promise: a crashed holder delays others by at most its lease and a second.
const BOUND: Duration = Duration::from_secs(3);

struct Station {
    locks: LockManager,
}

impl Station {
    /// Runs a shift while on duty. The lease is renewed for as long as it lasts; when the process dies nobody renews it, and the
    /// first in the queue takes over.
    #[cache_lock(prefix = "duty", manager = &self.locks, timeout = PATIENCE, expire = LEASE, renew)]
    async fn on_duty<T>(
        &self,
        #[locked_object] post: u64,
        shift: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        shift.await
    }

    /// One waiter: when it gets in, it stays until all others have given up.
    async fn wait(&self, post: u64, no_lock: bool) -> Outcome {
        let asked = Instant::now();
        let shift = async {
            let waited = asked.elapsed();
            tokio::time::sleep((PATIENCE + Duration::from_millis(500)).saturating_sub(waited)).await;
            Ok(waited)
        };
        let answer = if no_lock { shift.await } else { self.on_duty(post, shift).await };
        match answer {
            Err(failure) if is_timeout(&failure) => Outcome::Refused("the post is taken".to_owned()),
            answer => Outcome::of(answer),
        }
    }
}

fn is_timeout(failure: &Failure) -> bool {
    failure.downcast_ref::<LockError>().is_some_and(LockError::is_timeout)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "A takeover: the holder is killed with SIGKILL, and one of 20 waiters in 4 processes gets the lock",
        tasks: 20,
        items: 1,
        processes: 4,
    });
    tell(&options, takeover).await
}

async fn takeover(run: &Run, options: &Options) -> Result<Report, Failure> {
    if options.items != 1 || options.processes == 1 {
        return Err(
            "there is one post to take over, and it takes several processes: leave --items and --processes out".into(),
        );
    }
    let station = Arc::new(Station { locks: run.locks().await? });
    let mut report = Report::default();

    if options.holder {
        station.on_duty(1, Process::wait_for_parent()).await?;
        return Ok(report);
    }
    if let Some(part) = options.part() {
        let waiter = |_| {
            let (station, no_lock) = (station.clone(), options.no_lock);
            async move { station.wait(1, no_lock).await }
        };
        take_part(part, waiter).await?;
        station.locks.shutdown().await;
        return Ok(report);
    }

    println!(
        "A takeover: {} waiters, the lease is {LEASE:?}, the holder is killed {QUEUEING:?} after they queue up.",
        options.tasks
    );
    println!("{}", run.circumstances(options));
    let holder = Process::start_holder(run).await?;
    let workers = Workers::start(run, options).await?.go().await?;
    tokio::time::sleep(QUEUEING).await;
    let killed_at = workers.elapsed();
    holder.kill().await?;
    let tally = workers.finish().await?;

    report.expect("got in", 1, tally.done);
    report.expect("gave up in good order", options.tasks - 1, tally.refusals());
    for waited in tally.waits.iter().take(5) {
        let (after, found) = match waited.checked_sub(killed_at) {
            Some(after) => (after, format!("{after:.1?}")),
            None => (Duration::MAX, "before it".to_owned()),
        };
        report.expect_that("got in after the kill", format!("<= {BOUND:?}"), found, after <= BOUND);
    }
    report.tally(&tally);
    station.locks.shutdown().await;
    Ok(report)
}
