//! [`Report`]: the result of a round, in words.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::lookout::UNPLANNED;
use super::plan::Plan;
use super::verdict::Verdict;
use history::checks::longest_wait;
use history::event::How;
use history::timeline::draw;
use history::{Bounds, History, Violation, What};

/// What happened in one round, or in several.
#[derive(Debug, Default)]
pub struct Report {
    /// Calls by outcome.
    pub operations: BTreeMap<String, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// How often two holds overlapped when a server may have lost the lock.
    pub allowed: usize,
    /// What each check found.
    pub violations: Vec<Violation>,
    /// For each check that found something: the seed, and the shortest stretch that shows it.
    pub drawn: Vec<String>,
    /// The longest wait for a lock that was granted.
    pub longest_wait: Duration,
    /// Things that were not released.
    pub leaks: u64,
}

impl Report {
    /// Judges a history.
    #[must_use]
    pub fn of(plan: &Plan, history: &History, bounds: &Bounds, mut faults: BTreeMap<String, u64>) -> Self {
        let Verdict { violations, allowed } = Verdict::of(plan, history, bounds);
        let mut operations: BTreeMap<String, u64> = BTreeMap::new();
        for event in &history.events {
            let (call, how) = match &event.what {
                What::Granted { .. } => ("acquire", How::Done),
                What::Refused { how, .. } => ("acquire", *how),
                What::Released { how, .. } => ("release", *how),
                What::Extended { how, .. } => ("extend", *how),
                What::Opened { accepted, .. } | What::Wrote { accepted, .. } => {
                    ("register", if *accepted == Some(false) { How::Lost } else { How::Done })
                }
                _ => continue,
            };
            *operations.entry(format!("{call} {how:?}").to_lowercase()).or_default() += 1;
        }
        let unplanned = history.faults.iter().filter(|fault| fault.kind == UNPLANNED).count();
        if unplanned > 0 {
            faults.insert(UNPLANNED.to_owned(), unplanned as u64);
        }
        let mut drawn: Vec<String> = Vec::new();
        for checked in violations.chunk_by(|one, next| one.check == next.check) {
            drawn.push(format!("seed {}, {} times: {}", plan.seed, checked.len(), draw(history, &checked[0])));
        }
        let left = history.events.iter().filter_map(|event| match &event.what {
            What::Left { before, after, .. } => Some(after.saturating_sub(*before)),
            _ => None,
        });
        let (longest_wait, leaks) = (longest_wait(history), left.sum());
        Self { operations, faults, allowed, violations, drawn, longest_wait, leaks }
    }

    /// Whether no check found anything.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.violations.is_empty()
    }

    /// Adds the next round.
    pub fn add(&mut self, other: Self) {
        for (into, from) in [(&mut self.operations, other.operations), (&mut self.faults, other.faults)] {
            for (name, count) in from {
                *into.entry(name).or_default() += count;
            }
        }
        self.allowed += other.allowed;
        self.violations.extend(other.violations);
        self.drawn.extend(other.drawn);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.leaks += other.leaks;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: &BTreeMap<String, u64>| {
            let all: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            format!("{} ({})", counts.values().sum::<u64>(), all.join(", "))
        };
        for drawn in &self.drawn {
            writeln!(f, "{drawn}")?;
        }
        writeln!(f, "operations:   {}", list(&self.operations))?;
        writeln!(f, "faults:       {}", list(&self.faults))?;
        writeln!(f, "overlaps that are allowed: {}", self.allowed)?;
        writeln!(f, "longest wait: {:?}", self.longest_wait)?;
        writeln!(f, "leaks:        {}", self.leaks)?;
        write!(f, "violations:   {}", self.violations.len())
    }
}
