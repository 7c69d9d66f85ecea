//! How one quantity grows with the number of something else.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::card::{FAINT, GRID, HEAD, Heading, TEXT, card, style};
use super::color_of;
use crate::contestant::Who;
use crate::numbers;

const HEIGHT: i32 = 400;

/// How the time to serve a waiting crowd grows with the crowd, one line per contestant, next to linear growth.
pub(super) fn draw(
    file: &Path,
    heading: &Heading<'_>,
    lines: &[(Who, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = card(file, HEIGHT, heading)?;
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let smallest = points().map(|(x, _)| x).fold(f64::INFINITY, f64::min);
    let right = points().map(|(x, _)| x).fold(0.0, f64::max);
    let top = points().map(|(_, y)| y).fold(right / smallest, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(HEAD)
        .margin_left(14)
        .margin_right(36)
        .margin_bottom(10)
        .x_label_area_size(46)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..right, 0.0..top * 1.06)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("waiting tasks")
        .axis_desc_style(style(14, FAINT))
        .label_style(style(12, FAINT))
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_labels(5)
        .y_labels(6)
        .x_label_formatter(&|value| numbers::round(*value))
        .y_label_formatter(&|value| format!("{value:.0}×"))
        .draw()?;
    let linear = [(0.0, 0.0), (right, right / smallest)];
    chart.draw_series(DashedLineSeries::new(linear, 5, 5, FAINT.stroke_width(1)))?;
    for (who, points) in lines {
        let color = color_of(*who, *who == Who::Mutex);
        chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(3)))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, color.filled())))?;
    }
    // The key, in the corner that the lines leave free.
    for (place, (who, _)) in lines.iter().rev().enumerate() {
        let middle = HEAD + 22 + 22 * i32::try_from(place)?;
        let color = color_of(*who, *who == Who::Mutex);
        area.draw(&PathElement::new([(84, middle), (112, middle)], color.stroke_width(3)))?;
        area.draw(&Circle::new((98, middle), 4, color.filled()))?;
        let right_of = style(14, TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(who.title(), &right_of, (120, middle))?;
    }
    area.present()?;
    Ok(())
}
