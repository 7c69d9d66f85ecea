//! Tables.

use std::fmt::Write;

use crate::arguments::Arguments;
use crate::contestant::Who;
use crate::outcome::Outcome;
use crate::rounds::Results;
use crate::server::Server;
use crate::stats::Sample;
use crate::workload::Case;

/// What was measured with what.
pub(crate) fn head(server: &Server, arguments: &Arguments, python: bool) -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut text = format!("Redis {} on loopback, {cores} cores", server.version());
    text.push_str(if arguments.quick { ", quick run\n" } else { "\n" });
    if !python {
        text.push_str("redis-py is left out: no Python with it (BENCH_PYTHON or .venv/bin/python)\n");
    }
    text
}

/// The table of one case: medians over the rounds with their spread, ratios to the baseline of the same round.
pub(crate) fn table(case: &Case, results: &Results) -> String {
    let mut text = format!("\n### {}\n\n| {} |", case.title, case.id);
    let _ = write!(text, " {} | × {} |", case.columns.join(" | "), case.baseline.title());
    let _ = writeln!(text, " failed / overlaps |\n|---|{}---|---|", "---|".repeat(case.columns.len()));
    let mut problems = String::new();
    for who in case.contestants {
        let outcomes: Vec<&Outcome> = results.rounds.iter().filter_map(|round| round.get(who)).collect();
        if outcomes.is_empty() {
            continue;
        }
        let _ = write!(text, "| {} |", who.title());
        for (place, column) in case.columns.iter().enumerate() {
            let sample = Sample::new(outcomes.iter().filter_map(|outcome| outcome.get(column)));
            let _ = write!(text, " {} |", cell(&sample, place == 0));
        }
        let _ = write!(text, " {} |", cell(&ratios(case, results, *who), true));
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
    text
}

fn total(outcomes: &[&Outcome], count: impl Fn(&Outcome) -> u64) -> u64 {
    outcomes.iter().map(|outcome| count(outcome)).sum()
}

/// The compared column against the baseline of the same round.
pub(crate) fn ratios(case: &Case, results: &Results, who: Who) -> Sample {
    let column = case.columns.first().copied().unwrap_or_default();
    Sample::new(results.rounds.iter().filter_map(|round| {
        let (own, base) = (round.get(&who)?.get(column)?, round.get(&case.baseline)?.get(column)?);
        Some(own / base)
    }))
}

fn cell(sample: &Sample, spread: bool) -> String {
    if sample.is_empty() {
        return "–".to_owned();
    }
    let median = number(sample.median());
    let (low, high) = (number(sample.min()), number(sample.max()));
    if spread && low != high { format!("{median} ({low}–{high})") } else { median }
}

/// Three digits that say something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => {
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
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// One line of the verdict: what is wanted of a column of ours.
struct Target {
    case: &'static str,
    what: &'static str,
    /// `None`: the ratio to the baseline.
    column: Option<&'static str>,
    limit: f64,
    at_least: bool,
}

const fn target(case: &'static str, what: &'static str, column: Option<&'static str>, limit: f64) -> Target {
    Target { case, what, column, limit, at_least: false }
}

const fn at_least(case: &'static str, what: &'static str, column: Option<&'static str>, limit: f64) -> Target {
    Target { case, what, column, limit, at_least: true }
}

const TARGETS: &[Target] = &[
    target("w1-pinned", "× the raw pair", None, 1.10),
    target("w1-multi", "× the raw pair", None, 1.10),
    at_least("w2-64", "× the raw pairs/s", None, 0.95),
    at_least("w2-64-current", "× the raw pairs/s", None, 0.95),
    at_least("w2-1000", "× the raw pairs/s", None, 0.95),
    at_least("w2-1000-current", "× the raw pairs/s", None, 0.95),
    target("w3", "× the bodies one after another", None, 1.25),
    target("w3-pinned", "× the bodies one after another", None, 1.25),
    target("w3b", "× tokio::sync::Mutex", None, 4.0),
    target("w3b-current", "× tokio::sync::Mutex", None, 4.0),
    target("w3b", "commands for all 1,000", Some("commands per sale"), 60.0),
    target("w4-2", "× the bodies one after another", None, 2.0),
    target("w4-2", "commands per hand-off", Some("commands per hand-off"), 3.0),
    target("w4-4", "commands per hand-off", Some("commands per hand-off"), 3.0),
    at_least("w5", "Jain", Some("Jain"), 0.99),
    target("w5", "longest wait / cycle", Some("longest / cycle"), 1.5),
    at_least("w5-2", "Jain of processes", Some("Jain of processes"), 0.95),
    target("w6", "hand-off / PING", Some("× PING"), 1.5),
    target("w6", "hand-off / PING after a pause", Some("× PING after a pause"), 1.5),
    target("w7", "% of a core", Some("% of a core"), 10.0),
    target("w7", "bytes per hold", Some("bytes per hold"), 1024.0),
    target("w8-1", "bytes per waiter", Some("bytes per waiter"), 1024.0),
    target("w8-10000", "bytes per waiter", Some("bytes per waiter"), 1024.0),
    target("w9", "attribute / hand", Some("attribute / hand"), 1.02),
];

/// Our results against the targets.
pub(crate) fn verdict(all: &[(&Case, Results)]) -> String {
    let mut text = "\n### Targets\n\n| | measured, median (min–max) | wanted | |\n|---|---|---|---|\n".to_owned();
    for target in TARGETS {
        let Some((case, results)) = all.iter().find(|(case, _)| case.id == target.case) else { continue };
        let who = if case.contestants.contains(&Who::Ours) { Who::Ours } else { Who::InMemory };
        let sample = match target.column {
            None => ratios(case, results, who),
            Some(column) => {
                let of_ours = results.rounds.iter().filter_map(|round| round.get(&who)?.get(column));
                Sample::new(of_ours)
            }
        };
        if sample.is_empty() {
            continue;
        }
        let median = sample.median();
        let met = if target.at_least { median >= target.limit } else { median <= target.limit };
        let wanted = if target.at_least { "≥" } else { "≤" };
        let verdict = if met { "met" } else { "**missed**" };
        let (what, limit) = (target.what, number(target.limit));
        let _ = writeln!(text, "| {} {what} | {} | {wanted} {limit} | {verdict} |", case.id, cell(&sample, true));
    }
    text
}
