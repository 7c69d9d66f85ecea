//! Tables.

use std::fmt::Write;

use crate::arguments::Arguments;
use crate::column::Column;
use crate::contestant::Who;
use crate::numbers::cell;
use crate::outcome::Outcome;
use crate::results::Results;
use crate::servers::Servers;
use crate::verdict;

/// The server and the machine of the measurement.
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

/// The table of one case, and its targets.
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
