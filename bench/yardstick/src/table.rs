//! The kept counts, and the comparison with them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::cases::{ALL, ALLOWED};
use crate::count::{Cost, Wanted, count};

/// Whether locks count for metrics here, which costs them allocations.
const WITH_METRICS: bool = cfg!(feature = "metrics");

/// Growth by more than this number of instructions is worse: a server does its own housekeeping ten times a second, whatever it is asked.
const ALLOWED_ON_SERVER: f64 = 300.0;
const HEAD: &str = "# What one operation costs. `cargo run --release -p yardstick -- --write` renews this.\n\
                    # With `--features metrics` the last column. Case, instructions, those of the server, allocations,\n\
                    # allocations with metrics:\n";
/// The table's entry where there is no server.
const NONE: &str = "-";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("counts.txt")
}

/// The kept counts of a case.
#[derive(Clone, Copy, Debug)]
struct Kept {
    plain: Cost,
    with_metrics: f64,
}

impl Kept {
    /// What the case may cost here.
    fn cost(self) -> Cost {
        if WITH_METRICS { Cost { allocations: self.with_metrics, ..Cost::default() } } else { self.plain }
    }
}

/// Counts all cases, and keeps the counts.
pub(crate) fn write() -> Result<(), String> {
    let kept = kept()?;
    let mut text = HEAD.to_owned();
    for case in ALL {
        let mut kept = *kept.get(case.name).unwrap_or(&Kept { plain: Cost::default(), with_metrics: 0.0 });
        if WITH_METRICS {
            kept.with_metrics = count(case, Wanted::Allocations)?.allocations;
        } else {
            kept.plain = count(case, Wanted::All)?;
        }
        let Kept { plain: Cost { instructions, on_server, allocations }, with_metrics } = kept;
        let shown = |count: Option<f64>| count.map_or_else(|| NONE.to_owned(), |count| format!("{count:.0}"));
        let (instructions, on_server) = (shown(instructions), shown(on_server));
        let line = format!("{:<17} {instructions:>6} {on_server:>6} {allocations:>6.2} {with_metrics:>6.2}", case.name);
        println!("{line}");
        // Writing to a `String` can't fail.
        let _ = writeln!(text, "{line}");
    }
    fs::write(path(), text).map_err(|error| format!("{}: {error}", path().display()))
}

/// Counts all cases. Fails when one costs more than its kept count.
pub(crate) fn check(wanted: Wanted) -> Result<(), String> {
    let kept = kept()?;
    let mut grown = Vec::new();
    println!("{:<17} {:>26} {:>26} {:>20}", "case", "instructions", "of the server", "allocations");
    for case in ALL {
        let mut cost = count(case, wanted)?;
        let before = kept.get(case.name).ok_or_else(|| format!("{} is not in {}", case.name, path().display()))?.cost();
        if is_worse(before, cost, case.allowed) {
            // On a busy machine the keeper checks more often while a case runs. So the lower of two counts is used.
            cost = cost.lower(count(case, wanted)?);
        }
        let row = row(case.name, before, cost);
        println!("{row}");
        if is_worse(before, cost, case.allowed) {
            grown.push(row);
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "These cost more than {:.0} % more than bench/yardstick/counts.txt says (batches: 25 %):\n{}",
        ALLOWED * 100.0,
        grown.join("\n")
    ))
}

fn row(name: &str, before: Cost, now: Cost) -> String {
    let shown = |before: Option<f64>, now: Option<f64>| {
        now.zip(before).map_or_else(
            || NONE.to_owned(),
            |(now, before)| format!("{before:.0} -> {now:.0} ({:+.1} %)", (now / before - 1.0) * 100.0),
        )
    };
    let instructions = shown(before.instructions, now.instructions);
    let on_server = shown(before.on_server, now.on_server);
    format!("{name:<17} {instructions:>26} {on_server:>26} {:>9.2} -> {:>7.2}", before.allocations, now.allocations)
}

/// The instructions may grow by the part `allowed`.
fn is_worse(before: Cost, now: Cost, allowed: f64) -> bool {
    let is_more = |before: f64, now: f64, allowed| now > before * (1.0 + allowed);
    let on_server = now.on_server.zip(before.on_server).filter(|(now, before)| *now > before + ALLOWED_ON_SERVER);
    is_more(before.allocations, now.allocations, ALLOWED)
        || now.instructions.zip(before.instructions).is_some_and(|(now, before)| is_more(before, now, allowed))
        || on_server.is_some_and(|(now, before)| is_more(before, now, allowed))
}

fn kept() -> Result<BTreeMap<String, Kept>, String> {
    read(&fs::read_to_string(path()).map_err(|error| format!("{}: {error}", path().display()))?)
}

fn read(text: &str) -> Result<BTreeMap<String, Kept>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, instructions, on_server, allocations, with_metrics] = *words.as_slice() else {
                return Err(format!("no line of five words: {line}"));
            };
            let number = |word: &str| word.parse::<f64>().map_err(|_| format!("{word} is no number: {line}"));
            let on_server = if on_server == NONE { None } else { Some(number(on_server)?) };
            let plain =
                Cost { instructions: Some(number(instructions)?), on_server, allocations: number(allocations)? };
            Ok((name.to_owned(), Kept { plain, with_metrics: number(with_metrics)? }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn cost(instructions: Option<f64>, on_server: Option<f64>, allocations: f64) -> Cost {
        Cost { instructions, on_server, allocations }
    }

    #[test]
    fn more_than_three_percent_is_worse() {
        let before = cost(Some(1000.0), Some(20_000.0), 10.0);
        for (instructions, on_server, allocations, worse) in [
            (Some(1029.0), Some(20_599.0), 10.0, false),
            (Some(1031.0), Some(20_000.0), 10.0, true),
            (Some(1000.0), Some(20_601.0), 10.0, true),
            (Some(500.0), Some(500.0), 10.4, true),
            (None, None, 10.0, false),
            (None, None, 11.0, true),
        ] {
            let now = cost(instructions, on_server, allocations);
            assert_eq!(is_worse(before, now, ALLOWED), worse, "{now:?}");
        }
        let idle = |on_server| cost(None, Some(on_server), 10.0);
        assert!(!is_worse(idle(0.0), idle(299.0), ALLOWED) && is_worse(idle(0.0), idle(301.0), ALLOWED));
        let batched = cost(Some(1240.0), Some(24_800.0), 10.0);
        assert!(!is_worse(before, batched, 0.25) && is_worse(before, Cost { allocations: 10.4, ..batched }, 0.25));
    }

    #[test]
    fn what_is_kept_is_read_and_has_each_case() {
        let kept = read(&fs::read_to_string(path()).unwrap()).unwrap();
        assert!(ALL.iter().all(|case| kept[case.name].plain.on_server.is_some() == case.is_on_server));
        assert!(read("pair 1 2 3").is_err() && read("pair x 1 2 3").is_err() && read("pair 1 x 2 3").is_err());
    }
}
