//! How something grows with the number of something else.

use std::path::Path;

use plotters::prelude::*;

use super::{BOUND, OURS, TEXT, WIDTH};
use crate::contestant::Who;
use crate::report;

/// The growth of a value with the number of something, one line per contestant.
pub(super) fn draw(
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
