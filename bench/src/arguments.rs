//! The command line's arguments.

use std::path::PathBuf;

use crate::workload::{CASES, Case};

pub(crate) const USAGE: &str = "\
usage: cargo run --release -p bench -- [all | CASE…] [--server PROGRAM] [--quick] [--rounds N] [--only CONTESTANT]…
         [--json FILE] [--data FILE] [--svg DIR] [--markdown FILE]
       cargo run --release -p bench -- --from FILE [CASE…] [--data FILE] [--svg DIR] [--markdown FILE]
  PROGRAM is redis-server when nothing is said, or valkey-server.
  FILE of --json keeps what was measured, times included; everything else shows ratios. FILE of --data has those of each round.
  CASE is a group (w1 … w11, w3b, scale, hanging, telemetry) or one case (w2-64); see bench/src/workload.rs for all of them.";

/// The arguments of a benchmark run.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) cases: Vec<&'static Case>,
    pub(crate) quick: bool,
    pub(crate) rounds: Option<u32>,
    pub(crate) only: Vec<String>,
    /// The server's program.
    pub(crate) server: PathBuf,
    pub(crate) json: Option<PathBuf>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
    /// A JSON file of an earlier run, to be reported together with this run's results.
    pub(crate) from: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn read(words: &[String]) -> Result<Self, String> {
        let mut arguments = Self { server: "redis-server".into(), ..Self::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--quick" => arguments.quick = true,
                "--rounds" => {
                    arguments.rounds = Some(value()?.parse().map_err(|_| "--rounds takes a number".to_owned())?);
                }
                "--only" => arguments.only.push(value()?),
                "--server" => arguments.server = value()?.into(),
                "--json" => arguments.json = Some(value()?.into()),
                "--data" => arguments.data = Some(value()?.into()),
                "--svg" => arguments.svg = Some(value()?.into()),
                "--markdown" => arguments.markdown = Some(value()?.into()),
                "--from" => arguments.from = Some(value()?.into()),
                "all" => arguments.cases.extend(CASES),
                name => {
                    let found = CASES.iter().filter(|case| case.id == name || group(case) == name);
                    let count = arguments.cases.len();
                    arguments.cases.extend(found);
                    if arguments.cases.len() == count {
                        return Err(format!("there is no case {name:?}"));
                    }
                }
            }
        }
        if arguments.cases.is_empty() && arguments.from.is_none() {
            return Err("nothing to do".to_owned());
        }
        Ok(arguments)
    }
}

/// `w2` of `w2-64`.
fn group(case: &Case) -> &'static str {
    case.id.split('-').next().unwrap_or(case.id)
}
