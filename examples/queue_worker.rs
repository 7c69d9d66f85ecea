//! A hold that travels with its job: a web process takes the lock of a shop, puts an import into a queue with a ticket for that lock,
//! and answers 202. A worker takes the lock over with the ticket, imports, and releases.
//!
//! Then everything goes wrong: the web process is killed, a worker is killed in the middle of an import, and jobs are delivered twice.
//!
//! `cargo run --example queue_worker`, then again with `--no-lock`. The queue is a list in Redis: `--redis URL`, or a
//! redis-server on the PATH.

use std::collections::HashMap;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use examples::{Defaults, Failure, Options, Process, Queue, Report, Run, tell};
use lock_runtime::{LockError, LockManager, LockTicket};

/// How long a job may wait for a worker: as long as the ticket keeps the lock.
const QUEUED: Duration = Duration::from_secs(4);
/// How long a killed worker keeps the others out.
const LEASE: Duration = Duration::from_secs(2);
const IMPORT: Duration = Duration::from_millis(300);
/// A worker without a job for this long ends.
const IDLE: Duration = Duration::from_secs(3);
/// A lock is free at the latest this long after the lease or the ticket of a dead process has expired.
const GRACE: Duration = Duration::from_secs(1);

/// The worker of this shop's import is killed in the middle.
const KILLED: u64 = 2;
/// The job of this shop is delivered twice.
const TWICE: u64 = 3;
/// The web process is killed before it sends the job of this shop.
const UNSENT: u64 = 4;
const SHOPS: [u64; 4] = [1, KILLED, TWICE, UNSENT];

/// An entry of the queue. Without the lock there is no ticket.
struct Job {
    shop: u64,
    ticket: Option<LockTicket>,
}

impl FromStr for Job {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let (shop, ticket) = line.split_once(' ').unwrap_or((line, ""));
        let ticket = if ticket.is_empty() { None } else { Some(ticket.parse()?) };
        Ok(Self { shop: shop.parse()?, ticket })
    }
}

#[derive(Clone)]
struct Imports {
    locks: LockManager,
    queue: Queue,
    no_lock: bool,
}

impl Imports {
    async fn new(run: &Run, options: &Options) -> Result<Self, Failure> {
        Ok(Self { locks: run.locks().await?, queue: run.queue().await?, no_lock: options.no_lock })
    }

    /// The web process: it answers 202 as soon as the job is in the queue, and is then done with the import.
    async fn serve(mut self) -> Result<(), Failure> {
        for shop in SHOPS {
            let job = self.accept(shop).await?;
            if shop != UNSENT {
                self.queue.push(&job).await?;
            }
            if shop == TWICE {
                self.queue.push(&job).await?;
            }
        }
        // It is killed here.
        Process::wait_for_parent().await
    }

    /// A request for an import. It does not wait: when an import of this shop waits or runs, the answer is 409.
    async fn accept(&self, shop: u64) -> Result<String, Failure> {
        if self.no_lock {
            return Ok(shop.to_string());
        }
        let guard = self.locks.lock("import", &shop).timeout(Duration::ZERO).acquire().await?;
        let ticket = guard.into_ticket(QUEUED).await?;
        Ok(format!("{shop} {ticket}"))
    }

    /// A worker. It prints what it does, and ends when there are no more jobs.
    async fn work(mut self, worker: u32) -> Result<(), Failure> {
        Process::wait_for_parent().await?;
        while let Some(line) = self.queue.take(worker, IDLE).await? {
            let Job { shop, ticket } = line.parse()?;
            match self.import(shop, ticket).await {
                Ok(()) => println!("finished {shop}"),
                // The ticket is used up or expired: another worker has the import, or had it.
                Err(failure) if is_lost(&failure) => println!("skipped {shop}"),
                Err(failure) => return Err(failure),
            }
            self.queue.finish(worker, &line).await?;
        }
        self.locks.shutdown().await;
        Ok(())
    }

    /// From `adopt_with` on, this process has the lock, and its lease is renewed for as long as the import takes.
    async fn import(&self, shop: u64, ticket: Option<LockTicket>) -> Result<(), Failure> {
        let Some(ticket) = ticket else { return write(shop).await };
        let guard = self.locks.adopt_with(ticket, |request| request.expire(LEASE)).await?;
        tokio::select! {
            written = write(shop) => written?,
            // Nobody may import without the lock: the import is dropped, and `release` says why.
            () = guard.lost() => {}
        }
        Ok(guard.release().await?)
    }

    /// Whether another request gets the answer that the shop is busy.
    async fn is_busy(&self, shop: u64) -> Result<bool, Failure> {
        match self.locks.lock("import", &shop).timeout(Duration::ZERO).run(async {}).await {
            Ok(()) => Ok(false),
            Err(error) if error.is_timeout() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// How long a request waits that starts now.
    async fn wait(&self, shop: u64) -> Result<Duration, Failure> {
        let asked = Instant::now();
        Ok(self.locks.lock("import", &shop).timeout(QUEUED * 2).run(async { asked.elapsed() }).await?)
    }

    /// Passes on what a worker prints, until its process has ended. The first worker that imports the shop `KILLED` is killed, and its
    /// job is delivered once more. Returns how long that shop's lock stays taken from then on.
    async fn listen(mut self, worker: u32, mut process: Process, said: Said) -> Result<Option<Duration>, Failure> {
        while let Some(line) = process.line().await? {
            let is_bad = line == format!("started {KILLED}");
            if said.note(line) == 1 && is_bad {
                process.kill().await?;
                self.queue.put_back(worker).await?;
                return Ok(Some(self.wait(KILLED).await?));
            }
        }
        Ok(None)
    }
}

/// The lines that the workers have printed, and how often.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<HashMap<String, u32>>>);

impl Said {
    /// Counts a line. Returns how often it has been printed so far.
    fn note(&self, line: String) -> u32 {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = said.entry(line).or_default();
        *times += 1;
        *times
    }

    fn times(&self, line: &str) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(line).copied().unwrap_or_default()
    }
}

async fn write(shop: u64) -> Result<(), Failure> {
    println!("started {shop}");
    tokio::time::sleep(IMPORT).await;
    Ok(())
}

fn is_lost(failure: &Failure) -> bool {
    failure.downcast_ref::<LockError>().is_some_and(LockError::is_lost)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "A hold that travels with its job: processes are killed, a job comes twice, and each import runs once",
        tasks: 4,
        items: 1,
        processes: 3,
    });
    tell(&options, queue_worker).await
}

async fn queue_worker(run: &Run, options: &Options) -> Result<Report, Failure> {
    if options.tasks != 4 || options.items != 1 || options.processes < 2 {
        return Err("there are 4 imports, and it takes 2 workers: leave --tasks, --items and --processes out".into());
    }
    let imports = Imports::new(run, options).await?;
    let mut report = Report::default();
    if options.holder {
        imports.serve().await?;
        return Ok(report);
    }
    if let Some(worker) = options.worker {
        imports.work(worker).await?;
        return Ok(report);
    }

    println!(
        "A hold that travels with its job: 4 imports are accepted, then the web process is killed, and then a worker."
    );
    println!("{}", run.circumstances(options));
    let mut workers = Vec::new();
    for number in 0..options.processes {
        workers.push(Process::start_worker(run, number).await?);
    }
    let web = Process::start_holder(run).await?;
    let mut busy = 0;
    for shop in SHOPS {
        busy += u32::from(imports.is_busy(shop).await?);
    }
    web.kill().await?;
    let unsent = tokio::spawn({
        let imports = imports.clone();
        async move { imports.wait(UNSENT).await }
    });

    let said = Said::default();
    let mut listeners = Vec::new();
    for (number, mut process) in (0..).zip(workers) {
        process.go().await?;
        listeners.push(tokio::spawn(imports.clone().listen(number, process, said.clone())));
    }
    let mut killed = None;
    for listener in listeners {
        killed = listener.await??.or(killed);
    }
    let unsent = unsent.await??;

    report.expect("told that the shop is busy, while a job waits", 4, busy);
    for shop in SHOPS {
        report.expect(
            format!("imports of shop {shop}"),
            u32::from(shop != UNSENT),
            said.times(&format!("started {shop}")),
        );
    }
    report.expect("  of shop 2 to its end (the worker is killed)", 0, said.times(&format!("finished {KILLED}")));
    report.expect(
        "jobs that came again, and were skipped",
        2,
        [KILLED, TWICE].map(|shop| said.times(&format!("skipped {shop}"))).iter().sum(),
    );
    for (what, found, bound) in [
        ("free after the worker is killed", killed.unwrap_or(Duration::MAX), LEASE + GRACE),
        ("free when the web process is killed before it sends a job", unsent, QUEUED + GRACE),
    ] {
        report.expect_that(what, format!("<= {bound:?}"), format!("{found:.1?}"), found <= bound);
    }
    let mut taken = 0;
    for shop in SHOPS {
        taken += u32::from(imports.is_busy(shop).await?);
    }
    report.expect("locks that are taken in the end", 0, taken);
    imports.locks.shutdown().await;
    Ok(report)
}
