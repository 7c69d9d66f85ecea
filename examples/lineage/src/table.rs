//! [`Table`]: lock by fault, as text.

use std::fmt::{self, Write as _};

use crate::fault::Fault;
use crate::hall::{HALL, Plate};
use crate::stage::Cell;
use crate::verdict::Promise;

/// The results, one row per lock.
#[derive(Debug)]
pub struct Table {
    cells: Vec<(&'static str, Fault, Cell)>,
}

impl Table {
    pub(crate) fn of(cells: Vec<(&'static str, Fault, Cell)>) -> Self {
        Self { cells }
    }

    /// The result of one lock under one fault.
    #[must_use]
    pub fn cell(&self, plate: &Plate, fault: Fault) -> Option<&Cell> {
        let found = self.cells.iter().find(|(name, under, _)| *name == plate.name && *under == fault);
        found.map(|(.., cell)| cell)
    }

    /// The text of a cell: the numbers of the broken promises.
    #[must_use]
    pub fn text(&self, plate: &Plate, fault: Fault) -> String {
        match self.cell(plate, fault) {
            None => "-".to_owned(),
            Some(cell) if cell.broken.is_empty() => "kept".to_owned(),
            Some(cell) => {
                let numbers: Vec<_> = cell.broken.keys().map(|promise| promise.number().to_string()).collect();
                numbers.join(" ")
            }
        }
    }

    /// The promises that were broken anywhere.
    #[must_use]
    pub fn broken(&self) -> Vec<Promise> {
        let is_broken = |promise: &Promise| self.cells.iter().any(|(.., cell)| cell.broken.contains_key(promise));
        Promise::ALL.into_iter().filter(is_broken).collect()
    }

    /// What is not as expected: this project's lock broken, or a published one not caught where it is wrong.
    #[must_use]
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (plate, fault) in HALL.iter().flat_map(|plate| Fault::ALL.map(|fault| (plate, fault))) {
            let under = fault.title().join(" ");
            let Some(cell) = self.cell(plate, fault) else {
                mistakes.push(format!("{}, {under}: not played", plate.name));
                continue;
            };
            if cell.hits == 0 {
                mistakes.push(format!("{}, {under}: the fault missed", plate.name));
            }
            if !plate.is_published() {
                let found = cell.broken.iter();
                mistakes.extend(
                    found.map(|(promise, finding)| {
                        format!("{}, {under}: broke {promise}\n{}", plate.name, finding.drawn)
                    }),
                );
            }
            let missed = plate.wrong_under(fault).filter(|promise| !cell.broken.contains_key(promise));
            mistakes.extend(missed.map(|promise| format!("{}, {under}: kept {promise}", plate.name)));
        }
        mistakes
    }

    /// For each cell with a finding, the stretches of history that show it.
    #[must_use]
    pub fn drawn(&self) -> String {
        let mut text = String::new();
        for (name, fault, cell) in &self.cells {
            for (promise, finding) in &cell.broken {
                let _ = writeln!(text, "{name}, {}: {promise}\n  {}", fault.title().join(" "), finding.drawn);
            }
        }
        text
    }
}

const NAME: usize = 5;
const ABOUT: usize = 25;
const COLUMN: usize = 11;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in 0..2 {
            write!(f, "  {:NAME$}{:ABOUT$}", "", "")?;
            for fault in Fault::ALL {
                write!(f, "{:COLUMN$}", fault.title().get(line).copied().unwrap_or_default())?;
            }
            writeln!(f)?;
        }
        for plate in &HALL {
            write!(f, "  {:NAME$}{:ABOUT$}", plate.name, plate.about)?;
            for fault in Fault::ALL {
                write!(f, "{:COLUMN$}", self.text(plate, fault))?;
            }
            writeln!(f)?;
        }
        let names: Vec<_> = self.broken().iter().map(ToString::to_string).collect();
        write!(f, "\n  A number is a promise of docs/guarantees.md that was broken: {}.", names.join(", "))
    }
}
