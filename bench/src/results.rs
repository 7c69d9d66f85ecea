//! [`Results`]: the outcomes of a case, and the file that keeps them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::column::Column;
use crate::contestant::Who;
use crate::numbers::number;
use crate::outcome::Outcome;
use crate::stats::{Sample, float};
use crate::workload::{self, Case};

/// The outcomes of one case, by round and contestant.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) case: &'static Case,
    pub(crate) rounds: Vec<BTreeMap<Who, Outcome>>,
}

/// One measurement as it is written to the JSON file, with times and all. This is data for a closer look; everything printed, written as
/// Markdown or drawn is made of it as ratios.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    case: String,
    contestant: String,
    round: usize,
    outcome: Outcome,
}

impl Results {
    pub(crate) fn new(case: &'static Case) -> Self {
        Self { case, rounds: Vec::new() }
    }

    /// A contestant's values of a column, one for each round in which it took part.
    pub(crate) fn sample(&self, who: Who, column: &Column) -> Sample {
        let one = |round: &BTreeMap<Who, Outcome>| {
            let value = round.get(&who)?.get(column.value)?;
            if column.is_ratio { Some(value / round.get(&self.case.baseline)?.get(column.value)?) } else { Some(value) }
        };
        Sample::new(self.rounds.iter().filter_map(one))
    }

    /// A contestant's value as a multiple of another's in the same round.
    pub(crate) fn against(&self, who: Who, other: Who, value: &str) -> Sample {
        let one = |round: &BTreeMap<Who, Outcome>| Some(round.get(&who)?.get(value)? / round.get(&other)?.get(value)?);
        Sample::new(self.rounds.iter().filter_map(one))
    }

    /// The median over the rounds of a value without a unit of time.
    pub(crate) fn plain(&self, who: Who, value: &str) -> Option<f64> {
        let sample = Sample::new(self.rounds.iter().filter_map(|round| round.get(&who)?.get(value)));
        (!sample.is_empty()).then(|| sample.median())
    }

    /// The values of the case's table, by round. The rounds of a column are in ascending order.
    fn shown(&self) -> serde_json::Value {
        let rows = self.case.contestants.iter().filter_map(|who| {
            let columns = self.case.columns.iter().map(move |column| {
                // Three digits are as exact as a measurement.
                let round = |value: &f64| serde_json::json!(number(*value).replace(',', "").parse::<f64>().ok());
                let rounds: Vec<_> = self.sample(*who, column).values().iter().map(round).collect();
                (column.title, rounds)
            });
            let columns: serde_json::Map<_, _> = columns
                .filter(|(_, rounds)| !rounds.is_empty())
                .map(|(title, rounds)| (title.to_owned(), rounds.into()))
                .collect();
            (!columns.is_empty()).then(|| (who.title().to_owned(), columns.into()))
        });
        let rows: serde_json::Map<_, _> = rows.collect();
        let ratios = self.case.columns.iter().filter(|column| column.is_ratio).map(|column| column.title);
        serde_json::json!({
            "case": self.case.id,
            "title": self.case.title,
            "ratios": ratios.collect::<Vec<_>>(),
            "to": self.case.baseline.title(),
            "rounds": rows,
        })
    }

    /// How many times as long as ours the best of some others takes, by the compared column; contestants that fail do not count.
    pub(crate) fn best_of(&self, others: &[Who]) -> Sample {
        let Some(column) = self.case.columns.first() else { return Sample::default() };
        let others: Vec<Who> = others.iter().copied().filter(|who| !self.has_failed(*who)).collect();
        let one = |round: &BTreeMap<Who, Outcome>| {
            let values = others.iter().filter_map(|who| round.get(who)?.get(column.value));
            Some(values.min_by(f64::total_cmp)? / round.get(&Who::Ours)?.get(column.value)?)
        };
        Sample::new(self.rounds.iter().filter_map(one))
    }

    /// The share of a contestant's acquisitions that failed.
    pub(crate) fn failed(&self, who: Who) -> f64 {
        let total = |count: fn(&Outcome) -> u64| -> f64 {
            self.rounds
                .iter()
                .filter_map(|round| round.get(&who))
                .map(|outcome| float(usize::try_from(count(outcome)).unwrap_or_default()))
                .sum()
        };
        let failures = total(|outcome| outcome.failures);
        failures / (failures + total(|outcome| outcome.locks)).max(1.0)
    }

    /// Whether it failed so often that its other numbers say nothing.
    pub(crate) fn has_failed(&self, who: Who) -> bool {
        self.failed(who) > 0.05
    }
}

pub(crate) fn find<'a>(all: &'a [Results], case: &str) -> Option<&'a Results> {
    all.iter().find(|results| results.case.id == case)
}

/// Writes the results of a run.
pub(crate) fn write(file: &Path, all: &[Results]) -> Result<(), String> {
    let mut records = Vec::new();
    for results in all {
        for (round, outcomes) in results.rounds.iter().enumerate() {
            records.extend(outcomes.iter().map(|(who, outcome)| Record {
                case: results.case.id.to_owned(),
                contestant: who.id().to_owned(),
                round,
                outcome: outcome.clone(),
            }));
        }
    }
    let json = serde_json::to_string_pretty(&records).map_err(|error| error.to_string())?;
    std::fs::write(file, json).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes the data of the tables, round by round: ratios and counts, no times.
pub(crate) fn write_shown(file: &Path, head: &str, all: &[Results]) -> Result<(), String> {
    let cases: Vec<_> = all.iter().map(Results::shown).collect();
    let json = serde_json::json!({ "server": head.trim(), "cases": cases });
    let json = serde_json::to_string_pretty(&json).map_err(|error| error.to_string())?;
    std::fs::write(file, json + "\n").map_err(|error| format!("{}: {error}", file.display()))
}

/// Reads the results of an earlier run. Cases that no longer exist are left out.
pub(crate) fn read(file: &Path) -> Result<Vec<Results>, String> {
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let json = std::fs::read_to_string(file).map_err(|error| of_file(&error))?;
    let records: Vec<Record> = serde_json::from_str(&json).map_err(|error| of_file(&error))?;
    let mut all: Vec<Results> = Vec::new();
    for record in records {
        let Some((case, who)) = workload::case(&record.case).zip(Who::of_id(&record.contestant)) else { continue };
        if all.last().is_none_or(|results| results.case.id != case.id) {
            all.push(Results::new(case));
        }
        let Some(results) = all.last_mut() else { continue };
        if results.rounds.len() <= record.round {
            results.rounds.resize_with(record.round + 1, BTreeMap::new);
        }
        if let Some(round) = results.rounds.get_mut(record.round) {
            round.insert(who, record.outcome);
        }
    }
    Ok(all)
}
