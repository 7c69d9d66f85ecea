//! [`Report`]: the result table, and the exit status that follows from it.

use std::fmt::Display;
use std::process::ExitCode;

use crate::{Failure, Tally};

/// The rows of a story's result, each right or wrong.
#[derive(Debug, Default)]
#[must_use = "a report decides the exit status: return it to `tell`"]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    expected: String,
    found: String,
    right: bool,
}

impl Report {
    /// A row that is right when `found` equals `expected`.
    pub fn expect<T: PartialEq + Display>(&mut self, what: impl Into<String>, expected: T, found: T) {
        let right = expected == found;
        self.expect_that(what, expected, found, right);
    }

    /// A row whose expectation is described in words.
    pub fn expect_that(&mut self, what: impl Into<String>, expected: impl Display, found: impl Display, right: bool) {
        self.rows.push(Row { what: what.into(), expected: expected.to_string(), found: found.to_string(), right });
    }

    /// A row that is only for reading.
    pub fn note(&mut self, what: impl Into<String>, found: impl Display) {
        self.expect_that(what, "", found, true);
    }

    /// The rows that every race ends with: errors, waiting times, total.
    pub fn tally(&mut self, tally: &Tally) {
        self.expect("errors", 0, tally.errors());
        for (reason, times) in tally.failed.iter().take(5) {
            self.note(format!("  {times} x"), reason);
        }
        self.note("waited for the lock", &tally.waits);
        self.note("total", format!("{:.1?}", tally.took));
    }

    fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.right)
    }

    fn print(&self) {
        let what = self.width("", |row| &row.what);
        let expected = self.width("expected", |row| &row.expected);
        println!("\n  {:what$}  {:>expected$}  found", "", "expected");
        for row in &self.rows {
            let verdict = if row.right { "" } else { "  <- WRONG" };
            println!("  {:what$}  {:>expected$}  {}{verdict}", row.what, row.expected, row.found);
        }
        println!();
    }

    fn width(&self, header: &str, column: impl Fn(&Row) -> &String) -> usize {
        let cells = self.rows.iter().map(|row| column(row).chars().count());
        cells.chain([header.len()]).max().unwrap_or_default()
    }
}

/// Prints a story's result; the exit status is 1 if it is wrong or unknown. An empty report is a worker's: its parent prints
/// the result.
pub(crate) fn conclude(result: Result<Report, Failure>) -> ExitCode {
    match result {
        Ok(report) if report.rows.is_empty() => ExitCode::SUCCESS,
        Ok(report) => {
            report.print();
            if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
