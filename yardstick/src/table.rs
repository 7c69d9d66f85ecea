//! The kept counts, and the comparison with them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::cases::ALL;
use crate::count::{Cost, Wanted, count};

/// Whether locks count for metrics here, which costs them allocations.
const WITH_METRICS: bool = cfg!(feature = "metrics");

/// What grows by more than this part is worse.
const ALLOWED: f64 = 0.03;
const HEAD: &str = "# What one operation costs the client. `cargo run --release -p yardstick -- --write` renews this.\n\
                    # With `--features metrics` the last column. Case, instructions, allocations, allocations with metrics:\n";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("counts.txt")
}

/// What is kept of a case.
#[derive(Clone, Copy, Debug)]
struct Kept {
    plain: Cost,
    with_metrics: f64,
}

impl Kept {
    /// What the case may cost here.
    fn cost(self) -> Cost {
        if WITH_METRICS { Cost { instructions: None, allocations: self.with_metrics } } else { self.plain }
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
        let Kept { plain: Cost { instructions, allocations }, with_metrics } = kept;
        let instructions = instructions.unwrap_or_default();
        let line = format!("{:<17} {instructions:>6.0} {allocations:>6.2} {with_metrics:>6.2}", case.name);
        println!("{line}");
        // Writing to a `String` can't fail.
        let _ = writeln!(text, "{line}");
    }
    fs::write(path(), text).map_err(|error| format!("{}: {error}", path().display()))
}

/// Counts all cases. Fails when one costs more than what is kept.
pub(crate) fn check(wanted: Wanted) -> Result<(), String> {
    let kept = kept()?;
    let mut grown = Vec::new();
    println!("{:<17} {:>24} {:>20}", "case", "instructions", "allocations");
    for case in ALL {
        let mut cost = count(case, wanted)?;
        let before = kept.get(case.name).ok_or_else(|| format!("{} is not in {}", case.name, path().display()))?.cost();
        if is_worse(before, cost) {
            // On a busy machine the keeper looks more often while a case runs. So the lower of two counts counts.
            cost = cost.lower(count(case, wanted)?);
        }
        let row = row(case.name, before, cost);
        println!("{row}");
        if is_worse(before, cost) {
            grown.push(row);
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "These cost more than {:.0} % more than yardstick/counts.txt says:\n{}",
        ALLOWED * 100.0,
        grown.join("\n")
    ))
}

fn row(name: &str, before: Cost, now: Cost) -> String {
    let instructions = now.instructions.zip(before.instructions).map_or_else(
        || "not counted".to_owned(),
        |(now, before)| format!("{before:.0} -> {now:.0} ({:+.1} %)", (now / before - 1.0) * 100.0),
    );
    format!("{name:<17} {instructions:>24} {:>9.2} -> {:>7.2}", before.allocations, now.allocations)
}

fn is_worse(before: Cost, now: Cost) -> bool {
    let is_more = |before: f64, now: f64| now > before * (1.0 + ALLOWED);
    let instructions = now.instructions.zip(before.instructions);
    is_more(before.allocations, now.allocations) || instructions.is_some_and(|(now, before)| is_more(before, now))
}

fn kept() -> Result<BTreeMap<String, Kept>, String> {
    read(&fs::read_to_string(path()).map_err(|error| format!("{}: {error}", path().display()))?)
}

fn read(text: &str) -> Result<BTreeMap<String, Kept>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, instructions, allocations, with_metrics] = *words.as_slice() else {
                return Err(format!("no line of four words: {line}"));
            };
            let number = |word: &str| word.parse::<f64>().map_err(|_| format!("{word} is no number: {line}"));
            let plain = Cost { instructions: Some(number(instructions)?), allocations: number(allocations)? };
            Ok((name.to_owned(), Kept { plain, with_metrics: number(with_metrics)? }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn cost(instructions: Option<f64>, allocations: f64) -> Cost {
        Cost { instructions, allocations }
    }

    #[test]
    fn more_than_three_percent_is_worse() {
        let before = cost(Some(1000.0), 10.0);
        for (instructions, allocations, worse) in [
            (Some(1029.0), 10.0, false),
            (Some(1031.0), 10.0, true),
            (Some(500.0), 10.4, true),
            (None, 10.0, false),
            (None, 11.0, true),
        ] {
            assert_eq!(is_worse(before, cost(instructions, allocations)), worse, "{instructions:?} {allocations}");
        }
    }

    #[test]
    fn what_is_kept_is_read_and_has_each_case() {
        let kept = read(&fs::read_to_string(path()).unwrap()).unwrap();
        assert!(ALL.iter().all(|case| kept.contains_key(case.name)));
        assert!(read("pair 1 2").is_err() && read("pair x 1 2").is_err());
    }
}
