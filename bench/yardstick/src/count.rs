//! Counts what a case costs, in separate processes.

use std::process::{Command, Output, Stdio};

use crate::cases::Case;
use crate::server::Server;

/// How often an operation is repeated, the first and the second time.
const FEW: usize = 640;
const MANY: usize = 3200;

const VALGRIND: [&str; 3] = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// What to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Allocations,
}

/// What one operation costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// `None` when they were not counted.
    pub(crate) instructions: Option<f64>,
    /// Those of the server: `None` when they were not counted, or there is no server.
    pub(crate) on_server: Option<f64>,
    pub(crate) allocations: f64,
}

impl Cost {
    /// The lower of two counts, separately for each number.
    pub(crate) fn lower(self, other: Self) -> Self {
        let lower = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one.min(other));
        Self {
            instructions: lower(self.instructions, other.instructions),
            on_server: lower(self.on_server, other.on_server),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

pub(crate) fn count(case: &Case, wanted: Wanted) -> Result<Cost, String> {
    let server = if case.is_on_server { Some(Server::start(&[])?) } else { None };
    let url = server.as_ref().map_or_else(|| "-".to_owned(), Server::url);
    let allocations = number(&run(&[], case, MANY, &url)?.stdout, "allocations ")? / float(MANY);
    let is_counted = wanted == Wanted::All;
    let on_client = || per_operation(|count| on_client(case, count, &url));
    let on_server = || per_operation(|count| on_server(case, count));
    let instructions = is_counted.then(on_client).transpose()?;
    let on_server = (is_counted && case.is_on_server).then(on_server).transpose()?;
    Ok(Cost { instructions, on_server, allocations })
}

/// The additional instructions of the second run, for each additional repetition. A run repeats half as often again before it begins to
/// count allocations.
fn per_operation(run: impl Fn(usize) -> Result<f64, String>) -> Result<f64, String> {
    let (few, many) = (run(FEW)?, run(MANY)?);
    // Something that costs nothing may measure a little below zero.
    Ok(((many - few) / (float(MANY - FEW) * 1.5)).max(0.0))
}

/// The instructions of the process that has the locks.
fn on_client(case: &Case, count: usize, url: &str) -> Result<f64, String> {
    collected(&run(&VALGRIND, case, count, url)?.stderr)
}

/// The instructions of a server that does only this.
fn on_server(case: &Case, count: usize) -> Result<f64, String> {
    let server = Server::start(&VALGRIND)?;
    run(&[], case, count, &server.url())?;
    collected(&server.end()?)
}

fn collected(output: &[u8]) -> Result<f64, String> {
    number(output, "Collected : ")
}

/// Runs a case in a process, perhaps under another program.
fn run(under: &[&str], case: &Case, count: usize, url: &str) -> Result<Output, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let own = own.to_string_lossy().into_owned();
    let count = count.to_string();
    let mut words = under.to_vec();
    words.extend([&*own, "child", case.name, &count, url]);
    let Some((program, words)) = words.split_first() else { return Err("nothing to run".to_owned()) };
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("can't run {program}; is it installed? {error}"))?;
    if !output.status.success() {
        return Err(format!("{}: {}", case.name, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(output)
}

/// The number after a word.
fn number(output: &[u8], word: &str) -> Result<f64, String> {
    let text = String::from_utf8_lossy(output);
    let found = text.split(word).nth(1).and_then(|rest| rest.split_whitespace().next());
    found.and_then(|number| number.parse().ok()).ok_or_else(|| format!("no number behind {word:?}: {text}"))
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn float(count: usize) -> f64 {
    count as f64
}
