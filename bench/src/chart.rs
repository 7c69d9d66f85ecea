//! Charts, drawn as SVG.

use std::path::Path;

use plotters::style::RGBColor;

use crate::contestant::Who;
use crate::results::{self, Results};

mod bars;
mod lines;

use bars::Bar;

const WIDTH: u32 = 860;
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const BOUND: RGBColor = RGBColor(0x4d, 0x9d, 0x6a);
const PEER: RGBColor = RGBColor(0xb8, 0xbd, 0xc4);
const TEXT: RGBColor = RGBColor(0x33, 0x38, 0x3f);

/// What one file shows.
struct Chart {
    file: &'static str,
    case: &'static str,
    column: &'static str,
    title: &'static str,
}

const CHARTS: &[Chart] = &[
    Chart {
        file: "w1",
        case: "w1-pinned",
        column: "p50 µs",
        title: "Uncontended lock and release: median in µs (less is better)",
    },
    Chart {
        file: "w2",
        case: "w2-64",
        column: "pairs/s",
        title: "64 tasks on 64 keys: locks per second (more is better)",
    },
    Chart {
        file: "w3",
        case: "w3",
        column: "wall ms",
        title: "Flash sale: 1,000 buyers, 2 items, stock in Redis; ms (less is better)",
    },
    Chart {
        file: "w3b",
        case: "w3b",
        column: "µs per hand-over",
        title: "Flash sale, stock in memory: µs per hand-over (less is better)",
    },
    Chart { file: "w4", case: "w4-2", column: "wall ms", title: "Flash sale over two processes; ms (less is better)" },
    Chart {
        file: "w5-longest",
        case: "w5",
        column: "longest wait ms",
        title: "50 tasks, one key, 1 ms each: longest wait in ms (less is better)",
    },
    Chart {
        file: "w5-2-longest",
        case: "w5-2",
        column: "longest wait ms",
        title: "The same over two processes: longest wait in ms (less is better)",
    },
    Chart {
        file: "w6",
        case: "w6",
        column: "hand-off µs",
        title: "Hand-off between two processes: median in µs (less is better)",
    },
];

/// Draws every chart whose case was measured.
pub(crate) fn draw_all(folder: &Path, all: &[Results]) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    for chart in CHARTS {
        let Some(results) = results::find(all, chart.case) else { continue };
        let of = |who: &Who| Bar {
            who: *who,
            sample: results.sample(*who, chart.column),
            is_bound: *who == results.case.baseline && chart.case != "w5-2" && chart.case != "w6",
            failed: results.has_failed(*who),
        };
        let bars: Vec<Bar> = results.case.contestants.iter().map(of).filter(|bar| !bar.sample.is_empty()).collect();
        if bars.iter().filter(|bar| !bar.failed).count() > 1 {
            let file = folder.join(format!("{}.svg", chart.file));
            bars::draw(&file, chart.title, bars).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    for (file, cases, title) in [
        ("w8-one-key", ["w8-1-quarter", "w8-1"], "A crowd on one key: time until all have had the lock"),
        ("w8-many-keys", ["w8-10000-quarter", "w8-10000"], "A crowd on 10,000 keys: time until all have had the lock"),
    ] {
        let drawn: Vec<_> = [Who::Ours, Who::InMemory, Who::Mutex].map(|who| (who, growth(all, &cases, who))).into();
        if drawn.iter().all(|(_, points)| points.len() > 2) {
            let file = folder.join(format!("{file}.svg"));
            lines::draw(&file, title, ("waiting tasks", "ms"), &drawn).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// From nothing over the sizes that were measured.
fn growth(all: &[Results], cases: &[&str], who: Who) -> Vec<(f64, f64)> {
    let of_case = |case: &&str| {
        let results = results::find(all, case)?;
        let (waiters, drain) = (results.sample(who, "waiters"), results.sample(who, "drain ms"));
        (!drain.is_empty()).then(|| (waiters.median(), drain.median()))
    };
    std::iter::once((0.0, 0.0)).chain(cases.iter().filter_map(of_case)).collect()
}
