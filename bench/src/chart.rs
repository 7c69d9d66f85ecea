//! Charts, drawn as SVG.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::contestant::Who;
use crate::report;
use crate::rounds::Results;
use crate::stats::Sample;
use crate::workload::Case;

const WIDTH: u32 = 860;
/// Height of one bar with its margin.
const BAR: u32 = 30;
const HEAD: u32 = 64;
/// Where bars begin: names of contestants are to their left.
const LEFT: i32 = 260;
const RIGHT: i32 = 90;
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const BOUND: RGBColor = RGBColor(0x4d, 0x9d, 0x6a);
const PEER: RGBColor = RGBColor(0xb8, 0xbd, 0xc4);
const TEXT: RGBColor = RGBColor(0x33, 0x38, 0x3f);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

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
        column: "µs per pair",
        title: "Uncontended lock and release, µs (less is better)",
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
pub(crate) fn draw_all(folder: &Path, all: &[(&Case, Results)]) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    for chart in CHARTS {
        let Some((case, results)) = all.iter().find(|(case, _)| case.id == chart.case) else { continue };
        let bars: Vec<(Who, Sample)> = case
            .contestants
            .iter()
            .map(|who| {
                let of_who = results.rounds.iter().filter_map(|round| round.get(who)?.get(chart.column));
                (*who, Sample::new(of_who))
            })
            .filter(|(_, sample)| !sample.is_empty() && sample.median() > 0.0)
            .collect();
        if bars.len() > 1 {
            let file = folder.join(format!("{}.svg", chart.file));
            draw_bars(&file, chart.title, bars).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    for (file, cases, title) in [
        ("w8-one-key", ["w8-1-quarter", "w8-1"], "A crowd on one key: time until all have had the lock"),
        ("w8-many-keys", ["w8-10000-quarter", "w8-10000"], "A crowd on 10,000 keys: time until all have had the lock"),
    ] {
        let lines: Vec<_> = [Who::Ours, Who::InMemory, Who::Mutex].map(|who| (who, growth(all, &cases, who))).into();
        if lines.iter().all(|(_, points)| points.len() > 2) {
            let file = folder.join(format!("{file}.svg"));
            draw_lines(&file, title, ("waiting tasks", "ms"), &lines).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// From nothing over the sizes that were measured.
fn growth(all: &[(&Case, Results)], cases: &[&str], who: Who) -> Vec<(f64, f64)> {
    let of_case = |name: &&str| {
        let (_, results) = all.iter().find(|(case, _)| case.id == *name)?;
        let column = |column: &str| {
            let sample = Sample::new(results.rounds.iter().filter_map(|round| round.get(&who)?.get(column)));
            (!sample.is_empty()).then(|| sample.median())
        };
        Some((column("waiters")?, column("drain ms")?))
    };
    std::iter::once((0.0, 0.0)).chain(cases.iter().filter_map(of_case)).collect()
}

/// Horizontal bars on a logarithmic scale, each with its number: contestants differ by a factor of a thousand.
fn draw_bars(file: &Path, title: &str, mut bars: Vec<(Who, Sample)>) -> Result<(), Box<dyn std::error::Error>> {
    bars.sort_by(|(_, one), (_, other)| one.median().total_cmp(&other.median()));
    let height = HEAD + BAR * u32::try_from(bars.len())? + 16;
    let area = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    area.draw_text(title, &style(18), (16, 14))?;
    area.draw_text("medians, logarithmic scale; the thin line spans the rounds", &style(12), (16, 38))?;
    let low = bars.iter().map(|(_, sample)| sample.min()).fold(f64::INFINITY, f64::min) / 2.0;
    let high = bars.iter().map(|(_, sample)| sample.max()).fold(0.0, f64::max);
    let space = f64::from(i32::try_from(WIDTH)? - LEFT - RIGHT);
    for (place, (who, sample)) in bars.iter().enumerate() {
        let top = i32::try_from(HEAD + BAR * u32::try_from(place)?)?;
        draw_bar(&area, top, *who, sample, &|value| LEFT + pixels(space * (value / low).ln() / (high / low).ln()))?;
    }
    area.present()?;
    Ok(())
}

fn draw_bar(
    area: &Area<'_>,
    top: i32,
    who: Who,
    sample: &Sample,
    x: &dyn Fn(f64) -> i32,
) -> Result<(), Box<dyn std::error::Error>> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let color = match who {
        Who::Ours | Who::InMemory => OURS,
        _ if who.is_peer() => PEER,
        _ => BOUND,
    };
    let middle = top + 11;
    let style = ("sans-serif", 13).into_font().color(&TEXT);
    let name = style.clone().pos(Pos::new(HPos::Right, VPos::Center));
    area.draw_text(who.title(), &name, (LEFT - 8, middle))?;
    area.draw(&Rectangle::new([(LEFT, top), (x(sample.median()), top + 22)], color.filled()))?;
    area.draw(&PathElement::new([(x(sample.min()), middle), (x(sample.max()), middle)], TEXT.stroke_width(1)))?;
    let value = style.pos(Pos::new(HPos::Left, VPos::Center));
    area.draw_text(&report::number(sample.median()), &value, (x(sample.max()) + 6, middle))?;
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "pixels of a chart a few hundred wide")]
fn pixels(length: f64) -> i32 {
    length.round() as i32
}

/// The growth of a value with the number of something, one line per contestant.
pub(crate) fn draw_lines(
    file: &Path,
    title: &str,
    (x_title, y_title): (&str, &str),
    lines: &[(Who, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(file, (WIDTH, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let points = lines.iter().flat_map(|(_, points)| points);
    let (right, top) = points.fold((1.0_f64, 0.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18).into_font().color(&TEXT))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..right * 1.02, 0.0..top * 1.08)?;
    let label = ("sans-serif", 13).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .x_desc(x_title)
        .y_desc(y_title)
        .axis_desc_style(label.clone())
        .label_style(label.clone())
        .light_line_style(WHITE)
        .x_label_formatter(&|value| report::number(*value))
        .y_label_formatter(&|value| report::number(*value))
        .draw()?;
    for (place, (who, points)) in lines.iter().enumerate() {
        let color = [OURS, RGBColor(0xd9, 0x8a, 0x2b), BOUND, TEXT].get(place % 4).copied().unwrap_or(TEXT);
        let line = chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
        line.label(who.title()).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, color.filled())))?;
    }
    let background = WHITE.mix(0.9);
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(label)
        .background_style(background)
        .draw()?;
    area.present()?;
    Ok(())
}
