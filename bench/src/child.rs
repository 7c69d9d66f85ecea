//! The child's side: [`Run`], the parameters of a workload, and the line that the child answers with.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

use crate::Weigh;
use crate::contestant::{Who, with_contestant};
use crate::outcome::Outcome;
use crate::server::first_core;
use crate::workload::{self, Case, Flavour};

/// The work of one process.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) case: &'static Case,
    pub(crate) who: Who,
    pub(crate) url: String,
    /// The number of this process among all.
    pub(crate) part: u32,
    pub(crate) round: u32,
    pub(crate) quick: bool,
    pub(crate) weigh: Option<Weigh>,
}

impl Run {
    /// How many processes do the work. Work without locks can't be spread, so one process does all of it.
    pub(crate) fn processes(&self) -> u32 {
        if self.who == Who::Bare { 1 } else { self.case.processes }
    }

    /// `full`, or `quick` in a quick run.
    pub(crate) fn size(&self, full: u32, quick: u32) -> u32 {
        if self.quick { quick } else { full }
    }

    /// The arguments that start this run in a separate process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let quick = if self.quick { "quick" } else { "full" };
        let (part, round) = (self.part.to_string(), self.round.to_string());
        ["child", self.case.id, self.who.id(), &self.url, &part, &round, quick].map(str::to_owned).into()
    }

    fn read(arguments: &[String], weigh: Option<Weigh>) -> Option<Self> {
        let [case, who, url, part, round, size] = arguments else { return None };
        Some(Self {
            case: workload::case(case)?,
            who: Who::of_id(who)?,
            url: url.clone(),
            part: part.parse().ok()?,
            round: round.parse().ok()?,
            quick: size == "quick",
            weigh,
        })
    }
}

/// Reports that everything is prepared, and waits until the benchmark has reset the counters and started all processes.
pub(crate) fn ready() {
    println!("ready");
    wait_for_line();
}

fn wait_for_line() {
    // If nothing can be read the benchmark is gone, and nobody waits for a result.
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// Nanoseconds of a clock shared by all processes of this host.
pub(crate) fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + rest.unwrap_or_default()
}

/// Runs the workload that the arguments name, and prints the outcome.
pub(crate) fn main(arguments: &[String], weigh: Option<Weigh>) -> ExitCode {
    let Some(run) = Run::read(arguments, weigh) else {
        eprintln!("these arguments are the benchmark's own: {arguments:?}");
        return ExitCode::FAILURE;
    };
    let outcome = runtime(run.case.flavour).and_then(|runtime| {
        let outcome = with_contestant!(run.who, C => runtime.block_on(workload::run::<C>(&run)));
        // Its threads are kept: the benchmark still reads what they used.
        std::mem::forget(runtime);
        outcome
    });
    let outcome = outcome.unwrap_or_else(Outcome::failed);
    let line = serde_json::to_string(&outcome).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // Without a reader there is nothing left to do.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
    // The benchmark ends this process.
    wait_for_line();
    // Not by returning: a contestant's threads may be in the middle of something.
    std::process::exit(0)
}

fn runtime(flavour: Flavour) -> Result<Runtime, String> {
    let runtime = match flavour {
        Flavour::Pinned => {
            // Threads started by contestants inherit it.
            let _ = rustix::thread::sched_setaffinity(None, &first_core());
            Builder::new_current_thread().enable_all().build()
        }
        Flavour::Current => Builder::new_current_thread().enable_all().build(),
        Flavour::Multi => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    };
    runtime.map_err(|error| error.to_string())
}
