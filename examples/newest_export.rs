//! The newest wins: three users want the same report within a moment, each with other filters. Only the newest export is of use, so
//! each request takes the report from the one before.
//!
//! `cargo run --example newest_export`, then again with `--no-lock`, `--redis URL`, `--processes 3`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use examples::{Defaults, Failure, Ledger, Options, Outcome, Report, Run, race, take_part, tell};
use lock_runtime::{LockError, LockManager, cache_lock};

/// The time between two requests for an export.
const GAP: Duration = Duration::from_millis(200);
/// An export writes this many parts, and each takes this long.
const PARTS: u32 = 10;
const PART: Duration = Duration::from_millis(100);

struct Reports {
    locks: LockManager,
    files: Ledger,
}

impl Reports {
    /// Writes the file of a report. A newer export takes the lock: this body is dropped at its next `await`, and only then the newer one
    /// begins. The caller of this one gets `Lost`, with `forced: true`.
    #[cache_lock(prefix = "export", manager = &self.locks, on_busy = "replace", timeout = "5s")]
    async fn export(&self, #[locked_object] report: u64, number: u32) -> Result<(), Failure> {
        self.write(report, number).await
    }

    /// Correct only if nobody else writes the same file at the same time.
    async fn write(&self, report: u64, number: u32) -> Result<(), Failure> {
        let (file, whole) = (format!("file:{report}"), format!("whole:{report}"));
        self.files.write(&file, number.into()).await?;
        for _ in 0..PARTS {
            tokio::time::sleep(PART).await;
            if self.files.read(&file).await? != i64::from(number) {
                return Err("two exports wrote into one file".into());
            }
        }
        self.files.write(&whole, number.into()).await
    }

    /// One user, who asks a moment after the one before.
    async fn serve(&self, report: u64, number: u32, no_lock: bool) -> Outcome {
        tokio::time::sleep(GAP * number).await;
        let answer = if no_lock { self.write(report, number).await } else { self.export(report, number).await };
        match answer {
            Ok(()) => Outcome::Done(None),
            Err(failure) if is_replaced(&failure) => Outcome::Refused("a newer export took over".to_owned()),
            Err(failure) => Outcome::Failed(failure.to_string()),
        }
    }
}

fn is_replaced(failure: &Failure) -> bool {
    matches!(failure.downcast_ref(), Some(LockError::Lost { forced: true, completed: false, .. }))
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "The newest wins: of 3 exports of one report only the newest runs to its end",
        tasks: 3,
        items: 1,
        processes: 1,
    });
    tell(&options, newest_export).await
}

async fn newest_export(run: &Run, options: &Options) -> Result<Report, Failure> {
    if options.items != 1 || GAP * options.tasks >= PART * PARTS {
        return Err("there is one report, and at most 4 exports come while the first one runs".into());
    }
    let reports = Arc::new(Reports { locks: run.locks().await?, files: run.ledger().await? });
    let user = |number: u32| {
        let (reports, no_lock) = (reports.clone(), options.no_lock);
        async move { reports.serve(7, number, no_lock).await }
    };
    let mut report = Report::default();
    if let Some(part) = options.part() {
        take_part(part, user).await?;
        reports.locks.shutdown().await;
        return Ok(report);
    }

    println!("The newest wins: {} exports of one report, {GAP:?} apart; each takes {:?}.", options.tasks, PART * PARTS);
    println!("{}", run.circumstances(options));
    let tally = race(run, options, user).await?;

    report.expect("ran to their end", 1, tally.done);
    report.expect("replaced by a newer one", options.tasks - 1, tally.refusals());
    let newest = i64::from(options.tasks - 1);
    report.expect("export in the file (the newest)", newest, reports.files.read("file:7").await?);
    report.expect("export that is whole", newest, reports.files.read("whole:7").await?);
    report.tally(&tally);
    reports.locks.shutdown().await;
    Ok(report)
}
