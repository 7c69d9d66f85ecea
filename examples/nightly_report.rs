//! A nightly report: three processes tick, and the report is written once a night, even if the process that writes it is
//! killed in the middle. A night lasts three seconds here.
//!
//! `cargo run --example nightly_report`, then again with `--no-lock`. Several processes share a lock through a server:
//! `--redis URL`, or a redis-server on the PATH.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use examples::{Defaults, Failure, Options, Process, Report, Run, tell};
use lock_runtime::{LockError, LockManager, cache_lock};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// How often the report is due.
const NIGHT: Duration = Duration::from_secs(3);
/// A little shorter than a night: the clocks of the processes differ, and the next night must find the lock free.
const KEPT: Duration = Duration::from_secs(2);
/// How long it takes to write.
const WRITING: Duration = Duration::from_millis(300);
/// In this night the writing process is killed.
const BAD_NIGHT: u32 = 1;

struct Office {
    locks: LockManager,
}

impl Office {
    /// Writes the report unless it has been written in this night. A process that arrives while another writes, or a moment later,
    /// finds the lock taken and has nothing to do. `at_least` keeps the lock for the rest of the night, whatever happens to the
    /// writer: the job is quick, and a process with a slow clock must not write the report again.
    #[cache_lock(prefix = "report", key = "nightly", manager = &self.locks, timeout_ms = 0, at_least = KEPT,
                 on_fail = |error| unless_busy(error))]
    async fn report(&self, night: u32) -> Result<(), Failure> {
        self.write(night).await
    }

    async fn write(&self, night: u32) -> Result<(), Failure> {
        println!("started {night}");
        tokio::time::sleep(WRITING).await;
        println!("finished {night}");
        Ok(())
    }

    /// One process: it ticks at the beginning of each night.
    async fn work(&self, nights: u32, no_lock: bool) -> Result<(), Failure> {
        let first = nights_until_now() + 1;
        for night in 0..nights {
            tokio::time::sleep(until(first + night)).await;
            if no_lock { self.write(night).await? } else { self.report(night).await? }
        }
        // The lock of the last night is kept until the night ends.
        self.locks.shutdown().await;
        Ok(())
    }
}

/// Only "another process does it" means that there is nothing to do. A failed ask is a failure.
fn unless_busy(error: LockError) -> Result<(), Failure> {
    if error.is_timeout() { Ok(()) } else { Err(error.into()) }
}

/// The time shared by all processes.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nights_until_now() -> u32 {
    u32::try_from(now().as_secs() / NIGHT.as_secs()).unwrap_or_default()
}

/// How long until this night begins.
fn until(night: u32) -> Duration {
    (NIGHT * night).saturating_sub(now())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "A nightly report: 3 processes tick in 4 nights, and one is killed while it writes the report",
        tasks: 4,
        items: 1,
        processes: 3,
    });
    tell(&options, nightly_report).await
}

async fn nightly_report(run: &Run, options: &Options) -> Result<Report, Failure> {
    if options.items != 1 || options.processes < 2 {
        return Err("there is one report, and it takes several processes: leave --items and --processes out".into());
    }
    let mut report = Report::default();
    if options.part().is_some() {
        let office = Office { locks: run.locks().await? };
        Process::wait_for_parent().await?;
        office.work(options.tasks, options.no_lock).await?;
        return Ok(report);
    }

    println!("A nightly report: {} nights of {NIGHT:?}; in the second one a writer is killed.", options.tasks);
    println!("{}", run.circumstances(options));
    let mut processes = Vec::new();
    for number in 0..options.processes {
        processes.push(Process::start_worker(run, number).await?);
    }
    // All processes count from the same night.
    tokio::time::sleep(until(nights_until_now() + 1) + NIGHT / 10).await;
    let (sender, mut said) = unbounded_channel();
    for mut process in processes {
        process.go().await?;
        tokio::spawn(listen(process, sender.clone()));
    }
    drop(sender);
    let mut lines = Vec::new();
    while let Some(line) = said.recv().await {
        lines.push(line);
    }

    let count = |line: String| lines.iter().filter(|said| **said == line).count();
    for night in 0..options.tasks {
        report.expect(format!("reports begun in night {}", night + 1), 1, count(format!("started {night}")));
        let is_bad = night == BAD_NIGHT;
        let what = if is_bad { "  of them written (the writer is killed)" } else { "  of them written" };
        report.expect(what, usize::from(!is_bad), count(format!("finished {night}")));
    }
    Ok(report)
}

/// Passes on what a process prints, and kills it in the middle of the report of the bad night.
async fn listen(mut process: Process, said: UnboundedSender<String>) {
    while let Ok(Some(line)) = process.line().await {
        let is_bad = line == format!("started {BAD_NIGHT}");
        if said.send(line).is_err() || is_bad {
            // It may be gone already.
            return process.kill().await.unwrap_or_default();
        }
    }
}
