//! The card on which every chart is drawn. It is light and has an edge, so it can be read on pages of any colour.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

/// As wide as the text of a README, so that letters keep their size there.
pub(super) const WIDTH: i32 = 720;
/// Where the drawing begins, below title and subtitle.
pub(super) const HEAD: i32 = 74;
pub(super) const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// For details that a reader only looks up.
pub(super) const FAINT: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub(super) const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
pub(super) const PAPER: RGBColor = RGBColor(0xfc, 0xfd, 0xfe);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What is compared, and how to read it.
pub(super) struct Heading<'a> {
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
}

pub(super) fn style(size: i32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

/// A card of this height with its heading.
pub(super) fn card<'a>(
    file: &'a Path,
    height: i32,
    heading: &Heading<'_>,
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let area = SVGBackend::new(file, (u32::try_from(WIDTH)?, u32::try_from(height)?)).into_drawing_area();
    area.fill(&PAPER)?;
    area.draw(&Rectangle::new([(0, 0), (WIDTH - 1, height - 1)], GRID.stroke_width(1)))?;
    let bold = ("sans-serif", 19, FontStyle::Bold).into_font().color(&TEXT);
    area.draw_text(heading.title, &bold, (20, 16))?;
    area.draw_text(heading.subtitle, &style(14, FAINT), (20, 43))?;
    Ok(area)
}
