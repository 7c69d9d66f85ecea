//! Contestants side by side.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{BOUND, OURS, PEER, TEXT, WIDTH};
use crate::contestant::Who;
use crate::report;
use crate::stats::Sample;

/// Height of one bar with its margin.
const BAR: u32 = 30;
const HEAD: u32 = 64;
/// Where bars begin: names of contestants are to their left.
const LEFT: i32 = 260;
const RIGHT: i32 = 90;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One contestant's bar.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) who: Who,
    pub(super) sample: Sample,
    /// It bounds what a lock can do.
    pub(super) is_bound: bool,
    /// It did not do what was asked, so there is nothing to compare.
    pub(super) failed: bool,
}

/// Horizontal bars on a logarithmic scale, each with its number: contestants differ by a factor of a thousand.
pub(super) fn draw(file: &Path, title: &str, mut bars: Vec<Bar>) -> Result<(), Box<dyn std::error::Error>> {
    bars.sort_by(|one, other| {
        (one.failed, one.sample.median())
            .partial_cmp(&(other.failed, other.sample.median()))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let height = HEAD + BAR * u32::try_from(bars.len())? + 16;
    let area = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    area.draw_text(title, &style(18), (16, 14))?;
    area.draw_text("medians, logarithmic scale; the thin line spans the rounds", &style(12), (16, 38))?;
    let samples = || bars.iter().filter(|bar| !bar.failed).map(|bar| &bar.sample);
    let low = samples().map(Sample::min).fold(f64::INFINITY, f64::min) / 2.0;
    let high = samples().map(Sample::max).fold(0.0, f64::max);
    let space = f64::from(i32::try_from(WIDTH)? - LEFT - RIGHT);
    for (place, bar) in bars.iter().enumerate() {
        let top = i32::try_from(HEAD + BAR * u32::try_from(place)?)?;
        draw_bar(&area, top, bar, &|value| LEFT + pixels(space * (value / low).ln() / (high / low).ln()))?;
    }
    area.present()?;
    Ok(())
}

fn draw_bar(area: &Area<'_>, top: i32, bar: &Bar, x: &dyn Fn(f64) -> i32) -> Result<(), Box<dyn std::error::Error>> {
    let middle = top + 11;
    let style = ("sans-serif", 13).into_font().color(&TEXT);
    let name = style.clone().pos(Pos::new(HPos::Right, VPos::Center));
    let value = style.pos(Pos::new(HPos::Left, VPos::Center));
    area.draw_text(bar.who.title(), &name, (LEFT - 8, middle))?;
    if bar.failed {
        area.draw_text("fails", &value, (LEFT + 6, middle))?;
        return Ok(());
    }
    let color = match bar.who {
        Who::Ours | Who::InMemory => OURS,
        _ if bar.is_bound => BOUND,
        _ => PEER,
    };
    let sample = &bar.sample;
    area.draw(&Rectangle::new([(LEFT, top), (x(sample.median()), top + 22)], color.filled()))?;
    area.draw(&PathElement::new([(x(sample.min()), middle), (x(sample.max()), middle)], TEXT.stroke_width(1)))?;
    area.draw_text(&report::number(sample.median()), &value, (x(sample.max()) + 6, middle))?;
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "pixels of a chart a few hundred wide")]
fn pixels(length: f64) -> i32 {
    length.round() as i32
}
