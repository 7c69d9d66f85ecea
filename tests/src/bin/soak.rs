//! The soak: `cargo run --release -p tests --bin soak -- --minutes 30 --seed 7`.
//!
//! Exit status 1: a promise was broken; the output has the shortest stretch of history that shows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use history::History;
use tests::child;
use tests::server;
use tests::soak::round::Setting;
use tests::soak::{Place, Plan, Report, interrupt, ours, play};

/// Uses locks from several processes while servers, connections and processes fail, then checks the history.
#[derive(Debug, Parser)]
struct Arguments {
    /// Also shares locks among readers and permits, and locks several keys at once.
    #[arg(long)]
    modes: bool,
    /// Where the locks are; each place has its own faults.
    #[arg(long, value_enum, default_value_t = Place::Redis)]
    place: Place,
    /// The make of the servers.
    #[arg(long, value_enum, default_value_t = server::Kind::Redis)]
    servers: server::Kind,
    /// How long to run, in rounds of half a minute; at least one round.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Repeats the random decisions of an earlier run; the default is the time.
    #[arg(long)]
    seed: Option<u64>,
    /// The single server also loses its data: then holds may overlap, but fencing tokens must still grow.
    #[arg(long)]
    forgetful: bool,
    /// Like at a provider of hosted servers: the password changes every few seconds, and in a cluster a replica confirms each grant.
    #[arg(long)]
    hosted: bool,
    /// The soak program of another version; every second worker runs it.
    #[arg(long)]
    beside: Option<PathBuf>,
    /// A folder for the histories; without it they are deleted.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// A file for the history of all rounds, for other checkers: `tests/history/README.md`.
    #[arg(long, conflicts_with_all = ["modes", "forgetful", "judge"])]
    history: Option<PathBuf>,
    /// Checks the history of one round that an earlier run kept in this folder, and runs nothing.
    #[arg(long)]
    judge: Option<PathBuf>,
}

impl Arguments {
    /// The plan of one round. The first round uses the seed itself, so the printed seed is enough to repeat any round.
    fn plan(&self, seed: u64) -> Plan {
        let plan = Plan { forgetful: self.forgetful, servers: self.servers, ..Plan::at(self.place, seed) };
        let plan = if self.hosted { plan.hosted() } else { plan };
        if self.modes { plan } else { Plan { shared: 0, together: false, ..plan } }
    }
}

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        ours::work(&role);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    if arguments.forgetful && arguments.place != Place::Redis {
        eprintln!("--forgetful is for a single server");
        return ExitCode::from(2);
    }
    let seed = arguments.seed.unwrap_or_else(|| history::event::wall() / 1_000_000_000);
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).unwrap_or(Duration::MAX);
    let forgetful = if arguments.forgetful { ", with a server that forgets" } else { "" };
    if let Some(folder) = &arguments.judge {
        return tell(&judge(folder));
    }
    if let Some(file) = &arguments.history {
        std::fs::write(file, "").expect("a file for the history");
    }
    println!("seed {seed}, {time:?}, {:?}{forgetful}", arguments.place);
    let interrupted = interrupt::watch();
    let is_over = || interrupted.load(Ordering::SeqCst);
    let mut total = Report::default();
    let start = Instant::now();
    let mut number = 0;
    let mut longest = Duration::ZERO;
    while number == 0 || start.elapsed() + longest < time {
        let begun = Instant::now();
        let plan = arguments.plan(seed.wrapping_add(number));
        let setting = Setting {
            keep: arguments.keep.as_deref(),
            beside: arguments.beside.as_deref(),
            history: arguments.history.as_deref(),
            ..Setting::new("ours", None, &is_over)
        };
        let report = play(&plan, setting);
        if is_over() {
            return ExitCode::from(130);
        }
        println!("round {number}, seed {}: {} violations", plan.seed, report.violations.len());
        total.add(report);
        number += 1;
        longest = longest.max(begun.elapsed());
    }
    tell(&total)
}

fn judge(folder: &Path) -> Report {
    let plan = Plan::kept(folder).expect("a folder that `--keep` has made");
    Report::of(&plan, &History::read(folder), &ours::bounds(&plan), BTreeMap::new())
}

fn tell(report: &Report) -> ExitCode {
    println!("{report}");
    if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
