//! [`Outcome`]: what one child process measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The result of one workload for one contestant, in one process or merged over several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// By name. Values with a unit of time are data for ratios and for the JSON file: no table or chart shows them.
    pub(crate) values: BTreeMap<String, f64>,
    /// How often the lock was not obtained, or not released.
    pub(crate) failures: u64,
    /// How often two bodies were inside at once, or a write was lost.
    pub(crate) overlaps: u64,
    /// The first problem, in words.
    pub(crate) problem: Option<String>,
    /// Acquisitions that succeeded, for costs per lock.
    pub(crate) locks: u64,
    /// When this process began and ended, in µs of a clock shared by all processes.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Acquisitions of each task (W5).
    pub(crate) shares: Vec<f64>,
    /// By key, when each hold began and ended, in ns of the shared clock (hand-offs).
    pub(crate) holds: Vec<Vec<(u64, u64)>>,
}

impl Outcome {
    pub(crate) fn failed(problem: impl Into<String>) -> Self {
        Self { failures: 1, problem: Some(problem.into()), ..Self::default() }
    }

    pub(crate) fn set(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// Counts the result of one acquisition.
    pub(crate) fn count<T>(&mut self, result: Result<T, String>) -> Option<T> {
        match result {
            Ok(value) => {
                self.locks += 1;
                Some(value)
            }
            Err(problem) => {
                self.failures += 1;
                self.problem.get_or_insert(problem);
                None
            }
        }
    }

    /// Adds another process's outcome: counts add up, and values are copied if there is none yet.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (name, value) in other.values {
            self.values.entry(name).or_insert(value);
        }
        self.failures += other.failures;
        self.overlaps += other.overlaps;
        self.problem = self.problem.take().or(other.problem);
        self.locks += other.locks;
        // Zero means that the outcome has no time.
        self.began =
            if self.began == 0 || other.began == 0 { self.began + other.began } else { self.began.min(other.began) };
        self.ended = self.ended.max(other.ended);
        self.shares.extend(other.shares);
        self.holds.extend(other.holds);
    }
}
