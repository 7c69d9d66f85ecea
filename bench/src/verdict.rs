//! The targets, and whether they are met.

use std::fmt::Write;

use crate::contestant::Who;
use crate::report::{cell, number};
use crate::results::{self, Results};

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
pub(crate) fn table(all: &[Results]) -> String {
    let mut text = "\n### Targets\n\n| | measured, median (min–max) | wanted | |\n|---|---|---|---|\n".to_owned();
    for target in TARGETS {
        let Some(results) = results::find(all, target.case) else { continue };
        let case = results.case;
        let who = if case.contestants.contains(&Who::Ours) { Who::Ours } else { Who::InMemory };
        let sample = match target.column {
            None => results.ratios(who),
            Some(column) => results.sample(who, column),
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
