//! The rounds: every contestant in turn, case by case.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::child::Run;
use crate::contestant::Who;
use crate::measure::measure;
use crate::page::{self, Page};
use crate::results::{self, Results};
use crate::servers::Servers;
use crate::workload::Case;
use crate::{chart, report, verdict};

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let server = Servers::one(&arguments.server)?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let weighing = weighing_program(&this);
    let head = report::head(&server, arguments);
    print!("{head}");
    let mut all = arguments.from.as_ref().map_or(Ok(Vec::new()), |file| results::read(file))?;
    for case in &arguments.cases {
        let results = measure_case(&server, arguments, case, &this, weighing.as_ref())?;
        print!("{}", report::table(&results));
        // An earlier run's result of this case is out of date.
        match all.iter_mut().find(|earlier| earlier.case.id == case.id) {
            Some(earlier) => *earlier = results,
            None => all.push(results),
        }
        // The results are written now, whatever happens to the rest of a long run.
        if let Some(file) = &arguments.json {
            results::write(file, &all)?;
        }
    }
    publish(arguments, &all, &head)
}

/// Runs all contestants in turn, round by round.
fn measure_case(
    server: &Servers,
    arguments: &Arguments,
    case: &'static Case,
    this: &PathBuf,
    weighing: Option<&PathBuf>,
) -> Result<Results, String> {
    // Only now, and only as long as needed: idle masters always have a little to do.
    let mut clusters = BTreeMap::new();
    for masters in case.contestants.iter().filter_map(|who| who.masters()) {
        if let Entry::Vacant(place) = clusters.entry(masters) {
            place.insert(Servers::masters(&arguments.server, masters)?);
        }
    }
    let missing: Vec<_> = case.contestants.iter().copied().filter(|who| who.is_missing()).collect();
    let rounds = arguments.rounds.unwrap_or(case.rounds(arguments.quick));
    let mut results = Results::new(case);
    for round in 0..rounds {
        let mut outcomes = BTreeMap::new();
        for who in case.order(round) {
            if !takes_part(arguments, case, who, round, rounds) || missing.contains(&who) {
                continue;
            }
            progress(&format!("{} {}/{rounds} {}", case.id, round + 1, who.title()));
            let servers = who.masters().and_then(|masters| clusters.get(&masters)).unwrap_or(server);
            let run = Run { case, who, url: servers.url(), part: 0, round, quick: arguments.quick, weigh: None };
            let mut outcome = measure(servers, &run, this);
            // Counting slows a process down, so its other results are not used.
            if let (0, Some(column), Some(weighing)) = (round, case.weighed(), weighing)
                && let Some(bytes) = measure(servers, &run, weighing).get(column)
            {
                outcome.set(column, bytes);
            }
            outcomes.insert(who, outcome);
        }
        results.rounds.push(outcomes);
    }
    progress("");
    Ok(results)
}

/// Writes the verdict, and the files that the arguments name.
fn publish(arguments: &Arguments, all: &[Results], head: &str) -> Result<(), String> {
    let page = Page {
        head: head.trim().to_owned(),
        targets: all.iter().flat_map(verdict::rows).collect(),
        cases: all.iter().filter_map(|results| page::Case::read(&report::table(results))).collect(),
    };
    print!("\n{}", page.verdict());
    if let Some(file) = &arguments.markdown {
        page.place(file)?;
    }
    if let Some(file) = &arguments.data {
        results::write_shown(file, head, all)?;
    }
    if let Some(folder) = &arguments.svg {
        chart::draw_all(folder, all, arguments.quick)?;
    }
    Ok(())
}

/// Shows what is being measured, if stderr is a terminal.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

fn takes_part(arguments: &Arguments, case: &Case, who: Who, round: u32, rounds: u32) -> bool {
    if !arguments.only.is_empty() {
        return arguments.only.iter().any(|only| only == who.id());
    }
    // In a quick run one measurement of the others is enough, and the slowest take part in a few cases only.
    if arguments.quick && who.is_peer() {
        let also_slow = matches!(case.id, "w1-pinned" | "w3");
        return round == 0 && (also_slow || !who.is_foreign() && case.id != "w4-4");
    }
    // The others are slow, and so different that every third round shows it.
    !who.is_peer() || rounds <= 3 || round.is_multiple_of(3)
}

/// The program with the counting allocator, built next to this one if cargo is available.
fn weighing_program(this: &Path) -> Option<PathBuf> {
    let program = this.with_file_name(format!("weigh{}", std::env::consts::EXE_SUFFIX));
    if let Some(cargo) = std::env::var_os("CARGO") {
        // A failing build reports why.
        let _ = Command::new(cargo).args(["build", "--quiet", "--release", "-p", "bench", "--bin", "weigh"]).status();
    }
    if !program.exists() {
        eprintln!("the program that counts allocations is missing ({}): no such columns", program.display());
        return None;
    }
    Some(program)
}
