//! Tables.

use std::fmt::Write;

use crate::arguments::Arguments;
use crate::column::Column;
use crate::contestant::Who;
use crate::outcome::Outcome;
use crate::results::Results;
use crate::servers::Servers;
use crate::stats::Sample;
use crate::verdict;

/// What was measured with what.
pub(crate) fn head(server: &Servers, arguments: &Arguments) -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut text = format!("{} on loopback, {cores} cores", server.version());
    text.push_str(if arguments.quick { ", quick run: small crowds, short rounds, the others once\n" } else { "\n" });
    let missing: Vec<_> = Who::ALL.iter().filter(|who| who.is_missing()).map(|who| who.title()).collect();
    if !missing.is_empty() {
        let _ = writeln!(
            text,
            "left out, because they are not installed: {} (bench/src/contestant/foreign.rs)",
            missing.join(", ")
        );
    }
    text
}

/// The table of one case, and what it is held to.
pub(crate) fn table(results: &Results) -> String {
    let case = results.case;
    let titles: Vec<String> = case.columns.iter().map(title).collect();
    let mut text = format!("\n### {}\n\n{}\n| {} |", case.title, legend(results), case.id);
    // Writing to a string can't fail.
    let _ = writeln!(text, " {} | failed / overlaps |\n|---|{}---|", titles.join(" | "), "---|".repeat(titles.len()));
    let mut problems = String::new();
    for who in case.contestants.iter().copied() {
        let outcomes: Vec<&Outcome> = results.rounds.iter().filter_map(|round| round.get(&who)).collect();
        if outcomes.is_empty() {
            continue;
        }
        let _ = write!(text, "| {} |", who.title());
        for (place, column) in case.columns.iter().enumerate() {
            let _ = match place {
                0 if results.has_failed(who) => write!(text, " fails |"),
                _ => write!(text, " {} |", cell(&results.sample(who, column), place == 0)),
            };
        }
        let (failures, overlaps) = (total(&outcomes, |outcome| outcome.failures), total(&outcomes, |o| o.overlaps));
        let locks = total(&outcomes, |outcome| outcome.locks);
        let _ = match (failures, overlaps) {
            (0, 0) => writeln!(text, " – |"),
            _ => writeln!(text, " **{failures} of {} / {overlaps}** |", failures + locks),
        };
        if let Some(problem) = outcomes.iter().find_map(|outcome| outcome.problem.as_deref()) {
            let _ = writeln!(problems, "- {}: {}", who.title(), problem.lines().next().unwrap_or_default());
        }
    }
    if !problems.is_empty() {
        let _ = write!(text, "\n{problems}");
    }
    text.push_str(&verdict::of(results));
    text
}

fn title(column: &Column) -> String {
    if column.is_ratio { format!("{} ×", column.title) } else { column.title.to_owned() }
}

/// What the sign × in the titles refers to.
fn legend(results: &Results) -> String {
    let rounds = results.rounds.len();
    let mut text = format!("{rounds} round{}.", if rounds == 1 { "" } else { "s" });
    if results.case.columns.iter().any(|column| column.is_ratio) {
        let _ = write!(text, " ×: as a multiple of *{}* in the same round.", results.case.baseline.title());
    }
    text.push('\n');
    text
}

fn total(outcomes: &[&Outcome], count: impl Fn(&Outcome) -> u64) -> u64 {
    outcomes.iter().map(|outcome| count(outcome)).sum()
}

/// The median, with the spread when there is one.
pub(crate) fn cell(sample: &Sample, spread: bool) -> String {
    if sample.is_empty() {
        return "–".to_owned();
    }
    let median = number(sample.median());
    let (low, high) = (number(sample.min()), number(sample.max()));
    if spread && low != high { format!("{median} ({low}–{high})") } else { median }
}

/// A number that is round, without the zeros that say how exact it is.
pub(crate) fn round(value: f64) -> String {
    let digits = number(value);
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.').to_owned() } else { digits }
}

/// Three digits that say something, and all before the point.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => {
            let digits = format!("{value:.0}");
            let (mut grouped, count) = (String::new(), digits.len());
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (count - place).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
