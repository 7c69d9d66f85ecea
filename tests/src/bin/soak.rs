//! The soak: `cargo run --release -p tests --bin soak -- --minutes 30 --seed 7`.
//!
//! Exit status 1: a promise was broken, and the shortest stretch of history that shows it was printed.

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

/// Uses locks from several processes while servers, connections and processes fail, and judges what was seen.
#[derive(Debug, Parser)]
struct Arguments {
    /// Locks are shared by readers and permits, and taken together, as well.
    #[arg(long)]
    modes: bool,
    /// Where the locks are: each place has faults of its own.
    #[arg(long, value_enum, default_value_t = Place::Redis)]
    place: Place,
    /// Whose servers.
    #[arg(long, value_enum, default_value_t = server::Kind::Redis)]
    servers: server::Kind,
    /// For how long, in rounds of half a minute; at least one.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Repeats the random decisions of an earlier run; without one, the time.
    #[arg(long)]
    seed: Option<u64>,
    /// The one server also forgets: holds may overlap then, and fencing tokens must still grow.
    #[arg(long)]
    forgetful: bool,
    /// A folder for the histories, which are thrown away otherwise.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Judges the history of one round that an earlier run kept in this folder, and runs nothing.
    #[arg(long)]
    judge: Option<PathBuf>,
}

impl Arguments {
    /// The plan of one round. The first round has the seed itself: what it prints is all that is needed to repeat a round.
    fn plan(&self, seed: u64) -> Plan {
        let plan = Plan { forgetful: self.forgetful, servers: self.servers, ..Plan::at(self.place, seed) };
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
        eprintln!("--forgetful is for one server; where there are several they fail as they may");
        return ExitCode::from(2);
    }
    let seed = arguments.seed.unwrap_or_else(|| history::event::wall() / 1_000_000_000);
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).unwrap_or(Duration::MAX);
    let forgetful = if arguments.forgetful { ", with a server that forgets" } else { "" };
    if let Some(folder) = &arguments.judge {
        return tell(&judge(folder));
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
        let setting = Setting { lock: "ours", test: None, is_over: &is_over, keep: arguments.keep.as_deref() };
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
