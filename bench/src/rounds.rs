//! The rounds: every contestant in turn, case by case.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::arguments::Arguments;
use crate::child::Run;
use crate::contestant::{Who, redis_py};
use crate::measure::measure;
use crate::outcome::Outcome;
use crate::server::Server;
use crate::workload::Case;
use crate::{chart, profile, report};

const ROUNDS: u32 = 3;

/// The outcomes of one case: by contestant, one per round; `None` where it did not take part in that round.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) rounds: Vec<BTreeMap<Who, Outcome>>,
}

/// What goes into the JSON file, one line per measurement.
#[derive(Debug, Serialize)]
struct Record<'a> {
    case: &'a str,
    contestant: &'a str,
    round: usize,
    outcome: &'a Outcome,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let server = Server::start()?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let weighing = weighing_program(&this);
    let python = redis_py::python();
    let mut text = report::head(&server, arguments, python.is_some());
    print!("{text}");
    let mut records = Vec::new();
    let mut all = Vec::new();
    for case in &arguments.cases {
        let mut results = Results::default();
        let rounds = arguments.rounds.unwrap_or(if arguments.quick { quick_rounds(case) } else { ROUNDS });
        for round in 0..rounds {
            let mut outcomes = BTreeMap::new();
            for who in case.contestants.iter().copied().filter(|who| takes_part(arguments, case, *who, round)) {
                if who.is_python() && python.is_none() {
                    continue;
                }
                progress(&format!("{} {}/{rounds} {}", case.id, round + 1, who.title()));
                let run = Run { case, who, url: server.url(), part: 0, quick: arguments.quick, weigh: None };
                let mut outcome = measure(&server, &run, &this);
                // Counting slows a process down: its other results are not used.
                if let (0, Some(column), Some(weighing)) = (round, case.weighed(), &weighing)
                    && let Some(bytes) = measure(&server, &run, weighing).get(column)
                {
                    outcome.set(column, bytes);
                }
                outcomes.insert(who, outcome);
            }
            results.rounds.push(outcomes);
        }
        progress("");
        let table = report::table(case, &results);
        print!("{table}");
        text.push_str(&table);
        for (round, outcomes) in results.rounds.iter().enumerate() {
            for (who, outcome) in outcomes {
                let record = Record { case: case.id, contestant: who.id(), round, outcome };
                records.push(serde_json::to_value(record).map_err(|error| error.to_string())?);
            }
        }
        all.push((*case, results));
    }
    if arguments.profile {
        let table = profile::table(&server, &this, weighing.as_ref(), arguments.quick);
        print!("{table}");
        text.push_str(&table);
    }
    let verdict = report::verdict(&all);
    print!("{verdict}");
    text.push_str(&verdict);
    if let Some(file) = &arguments.json {
        let json = serde_json::to_string_pretty(&records).map_err(|error| error.to_string())?;
        write(file, &json)?;
    }
    if let Some(file) = &arguments.markdown {
        write(file, &text)?;
    }
    if let Some(folder) = &arguments.svg {
        chart::draw_all(folder, &all)?;
    }
    Ok(())
}

/// Says what is being measured, where somebody looks.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

/// The long ones once, when there is little time.
fn quick_rounds(case: &Case) -> u32 {
    if matches!(case.id.split('-').next(), Some("w7" | "w8")) { 1 } else { ROUNDS }
}

fn takes_part(arguments: &Arguments, case: &Case, who: Who, round: u32) -> bool {
    if !arguments.only.is_empty() {
        return arguments.only.iter().any(|only| only == who.id());
    }
    // In a quick run one look at the others has to do, and the slowest are seen in a few cases only.
    if arguments.quick && who.is_peer() {
        let also_slow = matches!(case.id, "w1-pinned" | "w3");
        return round == 0 && (also_slow || !who.is_python() && case.id != "w4-4");
    }
    true
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The program with the counting allocator, built beside this one when cargo is at hand.
fn weighing_program(this: &Path) -> Option<PathBuf> {
    let program = this.with_file_name(format!("weigh{}", std::env::consts::EXE_SUFFIX));
    if let Some(cargo) = std::env::var_os("CARGO") {
        let build =
            Command::new(cargo).args(["build", "--quiet", "--release", "-p", "bench", "--bin", "weigh"]).status();
        if !build.is_ok_and(|status| status.success()) {
            eprintln!("the program that counts allocations can't be built: no such columns");
        }
    }
    program.exists().then_some(program)
}
