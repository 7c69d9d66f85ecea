//! docs/report.md: the results of rounds of the soak on real servers, and one failover with and without a fence.
//!
//! `cargo run --release -p tests --bin report` makes the page. Its text is in `report/page.md`; a name in braces stands for what the runs
//! fill in.

pub mod counts;
pub mod failover;
pub mod faults;
mod picture;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::ValueEnum;
use history::History;
use history::event::span;

use crate::server;
use crate::soak::{Place, Plan, Report, ours};
use counts::Counts;
use faults::FAULTS;
pub use picture::draw as picture;

/// The page without the numbers.
pub const WORDS: &str = include_str!("report/page.md");

/// A place with servers of one kind, and the results there.
#[derive(Debug)]
pub struct Column {
    place: Place,
    servers: server::Kind,
    counts: Counts,
    /// How many faults of each kind there were.
    faults: BTreeMap<String, u64>,
    seeds: Vec<u64>,
    /// How long the rounds took, in nanoseconds.
    time: u64,
    /// The checks that found something, and what they found.
    found: Vec<String>,
}

/// The places, in the order of the page.
pub fn places() -> impl Iterator<Item = (server::Kind, Place)> {
    let of =
        |servers: &server::Kind| Place::value_variants().iter().map(|place| (*servers, *place)).collect::<Vec<_>>();
    server::Kind::value_variants().iter().flat_map(of)
}

/// The name of the folder with the rounds of a place.
#[must_use]
pub fn folder_of(servers: server::Kind, place: Place) -> String {
    format!("{servers:?}-{place:?}").to_lowercase()
}

impl Column {
    /// Judges all rounds kept in this folder; `None` if there are none.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        let mut rounds: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
        rounds.sort();
        let mut column: Option<Self> = None;
        for round in rounds {
            let Some(plan) = Plan::kept(&round) else { continue };
            let history = History::read(&round);
            column.get_or_insert_with(|| Self::of(&plan)).add(&plan, &history);
        }
        column
    }

    /// Whether no check found anything.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.found.is_empty()
    }

    fn of(plan: &Plan) -> Self {
        Self {
            place: plan.place,
            servers: plan.servers,
            counts: Counts::default(),
            faults: BTreeMap::new(),
            seeds: Vec::new(),
            time: 0,
            found: Vec::new(),
        }
    }

    fn add(&mut self, plan: &Plan, history: &History) {
        let report = Report::of(plan, history, &ours::bounds(plan), BTreeMap::new());
        self.counts.add(history, &report);
        for fault in &history.faults {
            *self.faults.entry(fault.kind.clone()).or_default() += 1;
        }
        self.seeds.push(plan.seed);
        let first = history.events.first().map_or(0, |event| event.t);
        self.time += history.last() - first;
        self.found.extend(report.drawn);
    }

    fn title(&self) -> String {
        format!("{:?}, {}", self.servers, title_of(self.place))
    }
}

fn title_of(place: Place) -> &'static str {
    match place {
        Place::Redis => "one server",
        Place::Sentinel => "Sentinel",
        Place::Cluster => "cluster",
        Place::Quorum => "quorum",
    }
}

/// The page. `versions` are those of the servers that ran.
#[must_use]
pub fn page(columns: &[Column], versions: &str) -> String {
    let total = |name: &str| columns.iter().map(|column| column.counts.of(name)).sum::<u64>();
    let faults: u64 = columns.iter().flat_map(|column| column.faults.values()).sum();
    let minutes = columns.iter().map(|column| column.time).sum::<u64>() / span(std::time::Duration::from_mins(1));
    let mut seeds: Vec<_> = columns.iter().flat_map(|column| &column.seeds).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let names = |all: &[&u64]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let plain = Plan::new(0);
    let values = [
        ("versions", versions.to_owned()),
        ("rounds", total("rounds").to_string()),
        ("minutes", minutes.to_string()),
        ("seeds", names(&seeds)),
        ("asked", grouped(total("locks asked for"))),
        ("holds", grouped(total("holds"))),
        ("faults", grouped(faults)),
        ("violations", grouped(total("violations"))),
        ("workers", plain.workers.to_string()),
        ("tasks", plain.tasks.to_string()),
        ("hot", plain.hot.to_string()),
        ("cold", plain.cold.to_string()),
        ("table of faults", table_of_faults(columns)),
        ("table of counts", table_of_counts(columns)),
        ("found", found(columns)),
    ];
    values.iter().fold(WORDS.to_owned(), |page, (name, value)| page.replace(&format!("{{{name}}}"), value))
}

fn head(first: &str, titles: &[String]) -> String {
    format!("| {first} | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(titles.len()))
}

fn row(name: &str, counts: impl Iterator<Item = u64>) -> String {
    let cells = counts.map(|count| if count == 0 { "–".to_owned() } else { grouped(count) });
    format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn table_of_counts(columns: &[Column]) -> String {
    let rows = counts::ROWS.iter().map(|name| row(name, columns.iter().map(|column| column.counts.of(name))));
    let titles: Vec<_> = columns.iter().map(Column::title).collect();
    head("", &titles) + rows.collect::<String>().trim_end()
}

/// The faults by place, in the order of the list. A sentence below names those that no round had.
fn table_of_faults(columns: &[Column]) -> String {
    let known = |name: &String| FAULTS.iter().any(|(known, _)| known == name);
    let unknown: Vec<_> = columns.iter().flat_map(|column| column.faults.keys()).filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "report/faults.rs has no words for {unknown:?}");
    let came = |name: &str| columns.iter().any(|column| column.faults.contains_key(name));
    let (came, others): (Vec<_>, Vec<_>) = FAULTS.iter().copied().partition(|(name, _)| came(name));
    let places: Vec<_> =
        Place::value_variants().iter().filter(|place| columns.iter().any(|column| column.place == **place)).collect();
    let count = |place: &Place, name: &str| {
        columns.iter().filter(|column| column.place == *place).filter_map(|column| column.faults.get(name)).sum()
    };
    let row = |(name, words): (&str, &str)| row(words, places.iter().map(|place| count(place, name)));
    let others: Vec<_> = others.into_iter().map(|(_, words)| words).collect();
    let rows: String = came.into_iter().map(row).collect();
    let titles: Vec<_> = places.iter().map(|place| title_of(**place).to_owned()).collect();
    format!("{}{rows}\nIn none of these rounds: {}.", head("fault", &titles), others.join("; "))
}

fn found(columns: &[Column]) -> String {
    let mut text = String::new();
    for column in columns.iter().filter(|column| !column.found.is_empty()) {
        let _ = write!(text, "{}:\n\n```text\n{}```\n\n", column.title(), column.found.concat());
    }
    if text.is_empty() { "No check found anything.".to_owned() } else { text.trim_end().to_owned() }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::checks::ALL;

    fn docs(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs").join(name);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped),
            ["0", "12", "123", "1,234", "123,456", "1,234,567"]
        );
    }

    #[test]
    fn the_page_names_every_promise_as_the_promises_do_and_every_check_of_the_checker() {
        let promises = docs("guarantees.md");
        let named = promises.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | **"));
        let named = named.filter_map(|(number, rest)| Some((number.parse::<u8>().ok()?, rest.split_once("**")?.0)));
        let named: Vec<_> = named.collect();
        assert_eq!(named.len(), 10);
        for (number, name) in named {
            assert!(
                WORDS.contains(&format!("| {number} {} |", name.trim_end_matches('.'))),
                "promise {number}, {name}"
            );
        }
        for (check, _) in ALL {
            assert!(WORDS.contains(&format!("`{check}`")), "{check}");
        }
    }

    /// Fails after a change to the text: then make the page again. It compares no numbers, because the histories may be gone.
    #[test]
    fn the_page_in_the_docs_has_these_words_and_no_gap() {
        let page = docs("report.md");
        let mut rest = page.as_str();
        for words in WORDS.split(['{', '}']).step_by(2) {
            let (_, after) = rest.split_once(words).unwrap_or_else(|| panic!("docs/report.md does not have: {words}"));
            rest = after;
        }
        assert!(!page.contains('{'), "something was not filled in");
        for row in counts::ROWS {
            assert!(page.contains(&format!("\n| {row} |")), "{row}");
        }
        for (_, words) in FAULTS {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn the_page_has_a_column_for_each_place() {
        let column = |(servers, place)| Column::of(&Plan { servers, ..Plan::at(place, 1) });
        let columns: Vec<_> = places().map(column).collect();
        let page = page(&columns, "none");
        assert_eq!(columns.len(), 8);
        assert!(columns.iter().all(|column| page.contains(&column.title())));
        assert!(!page.contains('{') && page.contains("No check found anything."), "{page}");
    }
}
