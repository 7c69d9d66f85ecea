//! The targets, and whether they are met.

use std::fmt::Write;

use crate::column::{BUSIEST, FIRST_SALE};
use crate::contestant::Who;
use crate::numbers::{cell, number};
use crate::results::Results;
use crate::stats::Sample;
use crate::workload::w8;

/// What a case demands of us.
struct Target {
    case: &'static str,
    what: &'static str,
    of: Measure,
    limit: f64,
    at_least: bool,
}

/// The value that a target is about.
enum Measure {
    /// The value of this column.
    Column(&'static str),
    /// How many times as long as ours the best Rust crate takes.
    BestCrate,
    /// This value of the first contestant, as a multiple of the other's.
    Against(Who, Who, &'static str),
}

use Measure::{Against, BestCrate, Column};
use Who::{AtOnce, InGroups, Ours, SixMasters, ThreeMasters};

const fn at_most(case: &'static str, what: &'static str, of: Measure, limit: f64) -> Target {
    Target { case, what, of, limit, at_least: false }
}

const fn at_least(case: &'static str, what: &'static str, of: Measure, limit: f64) -> Target {
    Target { case, what, of, limit, at_least: true }
}

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    at_most("w1-pinned", "median, × the raw pair", Column("p50 µs"), 1.05),
    at_most("w1-multi", "median, × the raw pair", Column("p50 µs"), 1.10),
    at_most("w1-current", "median, × the raw pair", Column("p50 µs"), 1.10),
    at_least("w2-64", "pairs per second, × raw", Column("pairs/s"), 1.5),
    at_least("w2-64-current", "pairs per second, × raw", Column("pairs/s"), 1.5),
    at_least("w2-1000", "pairs per second, × raw", Column("pairs/s"), 1.5),
    at_least("w2-1000-current", "pairs per second, × raw", Column("pairs/s"), 1.5),
    at_most("w3", "the sale, × its bodies one after another", Column("wall ms"), 1.25),
    at_most("w3-pinned", "the sale, × its bodies one after another", Column("wall ms"), 1.25),
    at_most("w3b", "per item, × tokio::sync::Mutex", Column("µs per hand-over"), 4.0),
    at_most("w3b-current", "per item, × tokio::sync::Mutex", Column("µs per hand-over"), 4.0),
    at_most("w3b", "per item, × tokio::sync::Mutex, a process's first sale", Column(FIRST_SALE), 3.0),
    at_least("w3b", "the best Rust crate, × ours", BestCrate, 100.0),
    at_most("w3b", "commands for all acquisitions of a sale", Column("commands per sale"), 60.0),
    at_most("w4-2", "the sale, × its bodies one after another", Column("wall ms"), 2.0),
    at_most("w4-2", "commands per hand-off", Column("commands per hand-off"), 3.0),
    at_most("w4-4", "commands per hand-off", Column("commands per hand-off"), 3.0),
    at_least("w5", "Jain", Column("Jain"), 0.99),
    at_most("w5", "longest wait / cycle of all 50", Column("longest wait / cycle"), 1.5),
    at_least("w5-2", "Jain of processes", Column("Jain of processes"), 0.95),
    at_most("w6", "hand-off / PING", Column("hand-off / PING"), 1.5),
    at_most("w6", "hand-off / PING after a pause", Column("hand-off / PING after a pause"), 1.5),
    at_most("w7", "% of a core", Column("% of a core"), 10.0),
    at_most("w7", "bytes per hold", Column("bytes per hold"), 1024.0),
    at_most("w7", "commands per 100 leases", Column("commands per 100 leases"), 1.0),
    at_most("w8-1", "bytes per waiter", Column("bytes per waiter"), 1024.0),
    at_most("w8-1", "drain is linear: per waiter, whole crowd / a quarter", Column(w8::GROWTH), LINEAR),
    at_most("w8-10000", "bytes per waiter", Column("bytes per waiter"), 1024.0),
    at_most("w8-10000", "drain is linear: per waiter, whole crowd / a quarter", Column(w8::GROWTH), LINEAR),
    at_most("w9", "attribute / hand", Column("attribute / hand"), 1.02),
    at_most("w10", "mean, × the raw pair", Column("µs per lock"), 0.05),
    at_most("w11", "a turn, × without linger", Column("µs per turn"), 1.5),
    at_most("w12", "server CPU per hand-off, 1,000 processes / 2", Column("server CPU per hand-off, 1000 processes / 2"), 1.3),
    at_most("w12", "1,000 wait, % of a core of the server", Column("1000 wait, % of a core of the server"), 1.0),
    at_most("w13", "per lock, × tokio::sync::RwLock", Column("µs per lock"), 4.0),
    at_most("w13-current", "per lock, × tokio::sync::RwLock", Column("µs per lock"), 4.0),
    at_most("w14", "per lock, × tokio::sync::Semaphore", Column("µs per lock"), 4.0),
    at_most("w14-current", "per lock, × tokio::sync::Semaphore", Column("µs per lock"), 4.0),
    at_least("w14-busy", "permits in use, %", Column("permits in use, %"), 95.0),
    at_most("w15", "two free keys, × one", Column("µs per pair"), 1.2),
    at_most("scale-locks", "commands per lock, × with three masters", Against(SixMasters, ThreeMasters, "commands per lock"), GROWTH),
    at_least("scale-locks", "locks per second, three masters × one server", Against(ThreeMasters, Ours, "locks/s"), 0.95),
    at_most("scale-locks", "busiest master / its share of the slots", Column(BUSIEST), 1.10),
    at_most("scale-hand-offs", "commands per hand-off, × with three masters", Against(SixMasters, ThreeMasters, "commands per hand-off"), GROWTH),
    at_most("scale-hand-offs", "a hand-off, six masters × one server", Against(SixMasters, Ours, "hand-off µs"), 1.3),
    at_most("scale-hand-offs", "the servers' CPU per lock, six masters × one server", Against(SixMasters, Ours, "server µs per lock"), 1.3),
    at_least("burst", "locks per second, all at one moment × 2,000 at a time", Against(AtOnce, InGroups, "locks/s"), 0.67),
    at_most("hanging-master", "p99, × with all masters up", Column("p99 µs"), 1.2),
];

/// Four times the crowd may take five times as long; twice as long per waiter would no longer be linear.
const LINEAR: f64 = 1.25;

/// With more masters a lock takes no more commands. On a busy machine a few more holds follow one of the same process, which costs
/// commands without a hand-off.
const GROWTH: f64 = 1.05;

/// A target and its measured value.
struct Judged {
    target: &'static Target,
    sample: Sample,
}

impl Judged {
    fn is_met(&self) -> bool {
        let median = self.sample.median();
        if self.target.at_least { median >= self.target.limit } else { median <= self.target.limit }
    }

    fn word(&self) -> &'static str {
        if self.is_met() { "met" } else { "**missed**" }
    }

    fn wanted(&self) -> String {
        format!("{} {}", if self.target.at_least { "≥" } else { "≤" }, number(self.target.limit))
    }
}

/// The targets of a case that were measured.
fn judged(results: &Results) -> Vec<Judged> {
    let case = results.case;
    // Otherwise all contestants are ours, in several places or modes: then the target is about the last.
    let has_lingering = case.contestants.contains(&Who::Lingering);
    let is_compared = case.baseline != Who::Ours && case.contestants.contains(&Who::Ours) && !has_lingering;
    let of_ours = case.contestants.iter().copied().rfind(|who| !who.is_peer());
    let who = if is_compared { Some(Who::Ours) } else { of_ours };
    let Some(who) = who else { return Vec::new() };
    let judge = |target: &'static Target| {
        let sample = match target.of {
            Column(value) => results.sample(who, case.columns.iter().find(|column| column.value == value)?),
            BestCrate => results.best_of(&Who::CRATES),
            Against(of, other, value) => results.against(of, other, value),
        };
        (!sample.is_empty()).then_some(Judged { target, sample })
    };
    TARGETS.iter().filter(|target| target.case == case.id).filter_map(judge).collect()
}

/// The targets of a case, below its table.
pub(crate) fn of(results: &Results) -> String {
    let mut text = String::new();
    for judged in judged(results) {
        let (what, wanted, word) = (judged.target.what, judged.wanted(), judged.word());
        // Writing to a string can't fail.
        let _ = writeln!(text, "- Target: {what} {wanted}. Measured {}: {word}.", cell(&judged.sample, true));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// One row per target, for the table of all targets.
pub(crate) fn rows(results: &Results) -> Vec<String> {
    let row = |judged: Judged| {
        let (case, what) = (judged.target.case, judged.target.what);
        let (measured, wanted, word) = (cell(&judged.sample, true), judged.wanted(), judged.word());
        format!("| {case} | {what} | {measured} | {wanted} | {word} |")
    };
    judged(results).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::workload;

    #[test]
    fn every_target_is_about_a_column_of_its_case() {
        for target in TARGETS {
            let case = workload::case(target.case).expect(target.case);
            if let Column(value) | Against(.., value) = target.of {
                assert!(case.columns.iter().any(|column| column.value == value), "{}: {value}", case.id);
            }
        }
    }

    #[test]
    fn with_ours_on_several_clusters_the_last_is_held_to_the_targets() {
        let mut results = Results::new(workload::case("scale-locks").expect("it is in the list"));
        let round = [(Who::Ours, 1.0), (Who::ThreeMasters, 2.0), (Who::SixMasters, 3.0)].map(|(who, commands)| {
            let mut outcome = Outcome { locks: 1, ..Outcome::default() };
            outcome.set("commands per lock", commands);
            (who, outcome)
        });
        results.rounds.push(round.into());
        let judged = judged(&results);
        let [judged] = judged.as_slice() else { panic!("one target: {}", judged.len()) };
        assert!((judged.sample.median() - 1.5).abs() < 1e-9, "{:?}", judged.sample);
        assert!(!judged.is_met());
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        let mut results = Results::new(workload::case("w1-pinned").expect("it is in the list"));
        // The machine is ten times slower in the second round; ours costs 1.05 and 1.15 times the raw pair.
        for (raw, ours) in [(20.0, 21.0), (200.0, 230.0)] {
            let round = [(Who::Raw, raw), (Who::Ours, ours)].map(|(who, micros)| {
                let mut outcome = Outcome { locks: 1, ..Outcome::default() };
                outcome.set("p50 µs", micros);
                (who, outcome)
            });
            results.rounds.push(round.into());
        }
        let judged = judged(&results);
        let [judged] = judged.as_slice() else { panic!("one target: {}", judged.len()) };
        assert!((judged.sample.median() - 1.10).abs() < 1e-9, "{:?}", judged.sample);
        assert!((judged.sample.max() - 1.15).abs() < 1e-9, "{:?}", judged.sample);
    }
}
