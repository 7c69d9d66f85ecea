//! Charts, drawn as SVG: only ratios, as in the tables.

use std::path::Path;

use plotters::style::RGBColor;

use crate::column::Column;
use crate::contestant::Who;
use crate::numbers;
use crate::results::{self, Results};
use crate::workload::{Workload, w6, w8};

mod bars;
mod card;
mod lines;

use bars::Bar;
use card::Heading;

/// This project.
const OURS: RGBColor = RGBColor(0xd9, 0x48, 0x0f);
/// This project without Redis.
const IN_MEMORY: RGBColor = RGBColor(0xf2, 0xa2, 0x6b);
/// The baseline of the ratios.
const BASELINE: RGBColor = RGBColor(0x2f, 0x7d, 0x6b);
const PEER: RGBColor = RGBColor(0x9a, 0xa7, 0xb5);
const FAILED: RGBColor = RGBColor(0xb4, 0x23, 0x18);

/// One file with bars for the first column of a case.
struct Chart {
    file: &'static str,
    case: &'static str,
    title: &'static str,
    /// What 1 × means.
    one: &'static str,
    less_is_better: bool,
}

const fn chart(file: &'static str, case: &'static str, title: &'static str, one: &'static str) -> Chart {
    Chart { file, case, title, one, less_is_better: true }
}

const CHARTS: &[Chart] = &[
    chart("w1", "w1-pinned", "A lock nobody else wants, taken and released", "1× = the two bare Redis commands"),
    Chart {
        less_is_better: false,
        ..chart("w2", "w2-64", "Locks per second, 64 tasks on 64 keys", "1× = the two bare Redis commands")
    },
    chart("w3", "w3", "Flash sale: 1,000 buyers at once, 2 items", "1× = the sales alone, one after another"),
    chart("w3b", "w3b", "Hand-over from buyer to buyer, stock in memory", "1× = tokio::sync::Mutex"),
    chart("w4", "w4-2", "Flash sale over two processes", "1× = the sales alone, one after another"),
    chart("w5", "w5", "Longest wait of 50 tasks for one key", "1× = all 50 have been inside once"),
    chart("w5-2", "w5-2", "Longest wait of 50 tasks in two processes", "1× = all 50 have been inside once"),
    chart("w6", "w6", "Hand-off from process to process", "1× = a PING"),
];

/// Draws every chart whose case was measured.
pub(crate) fn draw_all(folder: &Path, all: &[Results], quick: bool) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let small = if quick { " · of a small quick run" } else { "" };
    for chart in CHARTS {
        let found = results::find(all, chart.case);
        let Some((results, column)) = found.and_then(|results| Some((results, results.case.columns.first()?))) else {
            continue;
        };
        let bars: Vec<Bar> = results.case.contestants.iter().filter_map(|who| bar(results, *who, column)).collect();
        if bars.iter().filter(|bar| bar.failed.is_none()).count() > 1 {
            let better = if chart.less_is_better { "lower is better" } else { "higher is better" };
            let subtitle = format!("{}, logarithmic axis · {better}{small}", chart.one);
            let heading = Heading { title: chart.title, subtitle: &subtitle };
            let file = folder.join(format!("{}.svg", chart.file));
            bars::draw(&file, &heading, chart.less_is_better, bars)
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    for (file, case, title) in [
        ("w8-one-key", "w8-1", "A growing crowd on one key: time until all have had the lock"),
        ("w8-many-keys", "w8-10000", "A growing crowd on 10,000 keys: time until all have had a lock"),
    ] {
        let Some(results) = results::find(all, case) else { continue };
        let drawn: Vec<_> =
            [Who::Mutex, Who::InMemory, Who::Ours].map(|who| (who, growth(results, who))).into_iter().collect();
        if drawn.iter().all(|(_, points)| points.len() > 1) {
            let subtitle = format!("1× = its own smallest crowd · lower is better, the dashed line is linear{small}");
            let file = folder.join(format!("{file}.svg"));
            lines::draw(&file, &Heading { title, subtitle: &subtitle }, &drawn)
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    Ok(())
}

fn bar(results: &Results, who: Who, column: &Column) -> Option<Bar> {
    let failed = results.has_failed(who).then(|| results.failed(who));
    let sample = results.sample(who, column);
    let is_baseline = column.is_ratio && who == results.case.baseline;
    // A lock that polls hands off by luck, and mostly to itself.
    let handed = results.plain(who, w6::FOLLOWED).filter(|_| results.case.workload == Workload::HandOff);
    let note = handed.map(|part| format!(" after {} % of holds", numbers::round(part.max(1.0).round())));
    (!sample.is_empty() || failed.is_some()).then_some(Bar { who, sample, is_baseline, note, failed })
}

/// Waiters, and the time to serve them in times that of the smallest crowd.
fn growth(results: &Results, who: Who) -> Vec<(f64, f64)> {
    let Some(waiters) = results.plain(who, "waiters") else { return Vec::new() };
    let of = |quarters: u32| {
        let drain = results.plain(who, &w8::drain_of(quarters))?;
        Some((waiters / 4.0 * f64::from(quarters), drain))
    };
    w8::QUARTERS.into_iter().filter_map(of).collect()
}

fn color_of(who: Who, is_baseline: bool) -> RGBColor {
    match who {
        Who::Ours => OURS,
        Who::InMemory => IN_MEMORY,
        _ if is_baseline => BASELINE,
        _ => PEER,
    }
}
