//! [`Page`]: the measured part of bench/measured.md. A run renews the cases that it measured.

use std::fmt;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";
const VERDICT_HEADER: &str = "| case | what | measured, median (min–max) | wanted | |";

/// A run's results, as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page {
    /// The machine and the server.
    pub(crate) head: String,
    /// The rows of the verdict, in the order of the cases.
    pub(crate) targets: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

/// The table of one case, with its title and the text below it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The first cell of the table's header.
    id: String,
    text: String,
}

/// The first cell of a row.
fn first_cell(row: &str) -> Option<&str> {
    Some(row.strip_prefix("| ")?.split_once(" |")?.0)
}

impl Case {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let id = first_cell(text.lines().find(|line| line.starts_with("| "))?)?.to_owned();
        Some(Self { id, text: text.trim().to_owned() })
    }
}

impl Page {
    /// Reads what `fmt` has written.
    fn read(text: &str) -> Self {
        let mut sections = text.split("\n### ");
        let head = sections.next().unwrap_or_default().trim().to_owned();
        let mut page = Self { head, ..Self::default() };
        for section in sections {
            if section.starts_with("Verdict") {
                let rows = section.lines().filter(|line| line.starts_with("| ") && *line != VERDICT_HEADER);
                page.targets.extend(rows.map(str::to_owned));
            } else {
                page.cases.extend(Case::read(&format!("### {section}")));
            }
        }
        page
    }

    /// Adds a later run: each of its cases, and the targets of that case, are renewed or added.
    fn renew(&mut self, run: Self) {
        self.head = run.head;
        let is_renewed = |row: &String| run.cases.iter().any(|case| first_cell(row) == Some(&case.id));
        self.targets.retain(|row| !is_renewed(row));
        self.targets.extend(run.targets);
        for case in run.cases {
            match self.cases.iter_mut().find(|old| old.id == case.id) {
                Some(old) => *old = case,
                None => self.cases.push(case),
            }
        }
        let place = |row: &String| self.cases.iter().position(|case| first_cell(row) == Some(&case.id));
        self.targets.sort_by_key(place);
    }

    /// Writes the page into `file`. If the file has the marks, it writes between them: the text around them stays, and so do the cases
    /// that were not measured this time.
    pub(crate) fn place(self, file: &Path) -> Result<(), String> {
        let before = fs::read_to_string(file).unwrap_or_default();
        let around = before.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?)));
        let text = match around {
            Some((head, (measured, tail))) => {
                let mut page = Self::read(measured);
                page.renew(self);
                format!("{head}{BEGIN}\n\n{page}\n{END}{tail}")
            }
            None => self.to_string(),
        };
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// How many targets are met, and the table of all.
    pub(crate) fn verdict(&self) -> String {
        let met = self.targets.iter().filter(|row| row.ends_with("| met |")).count();
        let rows: String = self.targets.iter().flat_map(|row| [row.as_str(), "\n"]).collect();
        format!(
            "### Verdict: {met} of {} targets met\n\n{VERDICT_HEADER}\n|---|---|---|---|---|\n{rows}",
            self.targets.len()
        )
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\n{}", self.head, self.verdict())?;
        self.cases.iter().try_for_each(|case| write!(f, "\n{}\n", case.text))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn case(id: &str, number: &str) -> Case {
        Case::read(&format!("### Title of {id}\n\nA legend.\n\n| {id} | median |\n|---|---|\n| ours | {number} |"))
            .unwrap()
    }

    fn page(cases: &[(&str, &str)]) -> Page {
        Page {
            head: "A server, 2 cores".to_owned(),
            targets: cases.iter().map(|(id, number)| format!("| {id} | median | {number} | ≤ 2 | met |")).collect(),
            cases: cases.iter().map(|(id, number)| case(id, number)).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let page = page(&[("w1", "1"), ("w2", "2")]);
        assert_eq!(Page::read(&page.to_string()), page);
        assert!(page.to_string().contains("Verdict: 2 of 2 targets met"));
    }

    #[test]
    fn a_run_of_one_case_renews_that_case_and_adds_one_that_is_new() {
        let mut old = page(&[("w1", "1"), ("w2", "2")]);
        old.renew(page(&[("w3", "3"), ("w1", "9")]));
        assert_eq!(old, page(&[("w1", "9"), ("w2", "2"), ("w3", "3")]));
    }

    #[test]
    fn the_published_pages_are_as_they_would_be_written() {
        for text in [include_str!("../measured.md"), include_str!("../measured-valkey.md")] {
            let measured = text.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
            assert_eq!(Page::read(measured).to_string().trim(), measured.trim());
        }
    }
}
