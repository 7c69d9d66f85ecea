//! docs/report.md and its pictures, from runs on real servers: `cargo run --release -p tests --bin report`.
//!
//! Exit status 1: a promise was broken. The page is written anyway, and says so.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;

use clap::{Parser, ValueEnum};
use tests::report::{self, Column, failover, folder_of, places};
use tests::soak::round::Setting;
use tests::soak::{Place, Plan, interrupt, ours, play};
use tests::{child, server};

/// Plays rounds of the soak at each place, and writes a page with the results.
#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds at each place, of about half a minute. Of four in a row one has busy processes, and on one server one has an outage.
    #[arg(long, default_value_t = 4)]
    rounds: u64,
    /// The first round's seed; each round has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where histories are kept. A round that is already there is not played again: an interrupted run continues, and after a change to
    /// the page's text the page is written without playing.
    #[arg(long, default_value = "target/report")]
    keep: PathBuf,
    /// The folder of the page.
    #[arg(long, default_value = "docs")]
    docs: PathBuf,
}

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        ours::work(&role);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    let interrupted = interrupt::watch();
    let is_over = || interrupted.load(Ordering::SeqCst);
    for (servers, place) in places() {
        let keep = arguments.keep.join(folder_of(servers, place));
        for seed in arguments.seed..arguments.seed + arguments.rounds {
            let plan = Plan { servers, ..Plan::at(place, seed) };
            if Plan::kept(&keep.join(seed.to_string())).is_some() {
                continue;
            }
            let round = play(&plan, Setting { keep: Some(&keep), ..Setting::new("ours", None, &is_over) });
            if is_over() {
                return ExitCode::from(130);
            }
            println!("{servers:?}, {place:?}, seed {seed}: {} violations", round.violations.len());
        }
    }
    for fenced in [true, false] {
        draw(&arguments, fenced);
    }
    let columns: Vec<_> =
        places().filter_map(|(servers, place)| Column::read(&arguments.keep.join(folder_of(servers, place)))).collect();
    let page = report::page(&columns, &versions());
    std::fs::write(arguments.docs.join("report.md"), page).expect("a folder for the page");
    if columns.iter().all(Column::is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The failover's picture, from a history that is kept, too.
fn draw(arguments: &Arguments, fenced: bool) {
    let name = if fenced { "failover-fenced" } else { "failover" };
    let folder = arguments.keep.join(name);
    let history = failover::kept(&folder).unwrap_or_else(|| failover::play(fenced, &folder));
    let bounds = ours::bounds(&Plan::at(Place::Sentinel, 0));
    let picture = report::picture(&history, fenced, &bounds);
    let file = arguments.docs.join("charts").join(format!("{name}.svg"));
    std::fs::write(file, picture).expect("a folder for the picture");
}

/// The versions that the programs report, such as `Redis 7.0.15 and Valkey 9.1.2`.
fn versions() -> String {
    let of = |kind: &server::Kind| {
        let said = Command::new(kind.program()).arg("--version").output().expect("the server's program").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
        format!("{kind:?} {}", version.unwrap_or("of an unknown version"))
    };
    server::Kind::value_variants().iter().map(of).collect::<Vec<_>>().join(" and ")
}
