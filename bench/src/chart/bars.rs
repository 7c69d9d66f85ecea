//! Contestants side by side.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::card::{Area, FAINT, GRID, HEAD, Heading, PAPER, TEXT, WIDTH, card, style};
use super::{FAILED, color_of};
use crate::contestant::Who;
use crate::numbers;
use crate::stats::Sample;

/// The height of one bar, and the distance from one to the next.
const BAR: i32 = 20;
const STEP: i32 = 29;
/// Where the bars begin: the contestants' names are to their left.
const LEFT: i32 = 254;
/// For the number of the longest bar, and for a note after it.
const RIGHT: i32 = 84;
const RIGHT_OF_NOTES: i32 = 230;
/// About the width of a letter.
const LETTER: i32 = 8;
/// For the axis below.
const FOOT: i32 = 34;

/// One contestant's bar.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) who: Who,
    pub(super) sample: Sample,
    /// Whether the ratios refer to it.
    pub(super) is_baseline: bool,
    /// What a reader has to know about the number.
    pub(super) note: Option<String>,
    /// How often it failed to do the work, so there is nothing to compare.
    pub(super) failed: Option<f64>,
}

/// The logarithmic axis: contestants differ by a factor of a thousand.
struct Axis {
    low: f64,
    high: f64,
    right: i32,
}

impl Axis {
    fn over(bars: &[Bar]) -> Self {
        let samples = || bars.iter().filter(|bar| bar.failed.is_none()).map(|bar| &bar.sample);
        let low = samples().map(Sample::min).fold(1.0, f64::min);
        let high = samples().map(Sample::max).fold(2.0, f64::max);
        let right = if bars.iter().any(|bar| bar.note.is_some()) { RIGHT_OF_NOTES } else { RIGHT };
        // Even the smallest bar must be visible.
        Self { low: low / (high / low).powf(0.15).max(1.25), high, right }
    }

    #[expect(clippy::cast_possible_truncation, reason = "pixels of a chart a few hundred wide")]
    fn x(&self, value: f64) -> i32 {
        let space = f64::from(WIDTH - LEFT - self.right);
        LEFT + (space * (value / self.low).ln() / (self.high / self.low).ln()).round() as i32
    }

    /// Round numbers: the more decades, the fewer numbers.
    fn ticks(&self) -> Vec<f64> {
        let digits: &[f64] = match self.high / self.low {
            span if span > 100.0 => &[1.0],
            span if span > 8.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        };
        let decades = (-3..6).map(|power| 10.0_f64.powi(power));
        let all = decades.flat_map(|decade| digits.iter().map(move |digit| digit * decade));
        all.filter(|tick| (self.low..=self.high * 1.05).contains(tick)).collect()
    }
}

/// Horizontal bars, the best one first, each with its number.
pub(super) fn draw(
    file: &Path,
    heading: &Heading<'_>,
    less_is_better: bool,
    mut bars: Vec<Bar>,
) -> Result<(), Box<dyn std::error::Error>> {
    let sign = if less_is_better { 1.0 } else { -1.0 };
    let rank = |bar: &Bar| (bar.failed.is_some(), sign * bar.sample.median());
    bars.sort_by(|one, other| rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal));
    let bottom = HEAD + STEP * i32::try_from(bars.len())?;
    let area = card(file, bottom + FOOT, heading)?;
    let axis = Axis::over(&bars);
    for tick in axis.ticks() {
        let x = axis.x(tick);
        let color = if (tick - 1.0).abs() < 1e-9 { FAINT } else { GRID };
        area.draw(&PathElement::new([(x, HEAD - 4), (x, bottom)], color.stroke_width(1)))?;
        let below = style(12, FAINT).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw_text(&format!("{}×", numbers::round(tick)), &below, (x, bottom + 6))?;
    }
    for (place, bar) in bars.iter().enumerate() {
        draw_bar(&area, HEAD + STEP * i32::try_from(place)?, bar, &axis)?;
    }
    area.present()?;
    Ok(())
}

fn draw_bar(area: &Area<'_>, top: i32, bar: &Bar, axis: &Axis) -> Result<(), Box<dyn std::error::Error>> {
    let middle = top + BAR / 2;
    let weight = if matches!(bar.who, Who::Ours | Who::InMemory) { FontStyle::Bold } else { FontStyle::Normal };
    let text = ("sans-serif", 14, weight).into_font().color(&TEXT);
    area.draw_text(bar.who.title(), &text.pos(Pos::new(HPos::Right, VPos::Center)), (LEFT - 10, middle))?;
    let right_of = Pos::new(HPos::Left, VPos::Center);
    if let Some(part) = bar.failed {
        let failed = format!("failed: {:.0} % of its acquisitions", (part * 100.0).max(1.0));
        write(area, &failed, &style(14, FAILED).pos(right_of), (LEFT + 6, middle))?;
        return Ok(());
    }
    let (sample, color) = (&bar.sample, color_of(bar.who, bar.is_baseline));
    area.draw(&Rectangle::new([(LEFT, top), (axis.x(sample.median()), top + BAR)], color.filled()))?;
    let (from, to) = (axis.x(sample.min()), axis.x(sample.max()));
    if from < to {
        area.draw(&PathElement::new([(from, middle), (to, middle)], TEXT.stroke_width(1)))?;
        for end in [from, to] {
            area.draw(&PathElement::new([(end, middle - 3), (end, middle + 3)], TEXT.stroke_width(1)))?;
        }
    }
    let number = format!("{}×{}", numbers::number(sample.median()), bar.note.as_deref().unwrap_or_default());
    let text = ("sans-serif", 14, weight).into_font().color(&TEXT);
    write(area, &number, &text.pos(right_of), (to + 7, middle))
}

/// Writes words that the axis's lines don't cross.
fn write(
    area: &Area<'_>,
    words: &str,
    style: &TextStyle<'_>,
    at: (i32, i32),
) -> Result<(), Box<dyn std::error::Error>> {
    let width = LETTER * i32::try_from(words.chars().count())?;
    area.draw(&Rectangle::new([(at.0 - 2, at.1 - 8), (at.0 + width, at.1 + 8)], PAPER.filled()))?;
    area.draw_text(words, style, at)?;
    Ok(())
}
