//! The table as a drawing: a light card with an edge, readable on pages of any colour.

use std::fmt::Write as _;

use crate::fault::Fault;
use crate::hall::HALL;
use crate::table::Table;

/// As wide as the text of a README.
const WIDTH: i32 = 720;
const LEFT: i32 = 196;
const COLUMN: i32 = 63;
const HEAD: i32 = 118;
const ROW: i32 = 34;
const FOOT: i32 = 62;

const TEXT: &str = "#1f2328";
const FAINT: &str = "#59636e";
const KEPT: [&str; 2] = ["#dcf2e3", "#175c30"];
const BROKEN: [&str; 2] = ["#fbe0dc", "#8f1d12"];

/// An SVG file of the table.
#[must_use]
pub fn draw(table: &Table) -> String {
    let rows = i32::try_from(HALL.len()).unwrap_or_default();
    let height = HEAD + ROW * rows + FOOT;
    let mut svg = format!(
        r##"<svg width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">
<rect x="0.5" y="0.5" width="{}" height="{}" rx="4" fill="#fcfdfe" stroke="#d8dee4"/>
"##,
        WIDTH - 1,
        height - 1
    );
    let mut write = |x: i32, y: i32, style: &str, text: &str| {
        let _ = writeln!(svg, r#"<text x="{x}" y="{y}" {style}>{text}</text>"#);
    };
    write(
        20,
        32,
        &format!(r#"font-size="17" font-weight="bold" fill="{TEXT}""#),
        "Published locks and this one, under the same faults",
    );
    write(
        20,
        54,
        &format!(r#"font-size="13" fill="{FAINT}""#),
        "a number is a promise that was seen broken; kept: none was",
    );
    for (column, fault) in (0..).zip(Fault::ALL) {
        for (line, word) in (0..).zip(fault.title()) {
            let style = format!(r#"font-size="12" text-anchor="middle" fill="{TEXT}""#);
            write(LEFT + COLUMN * column + COLUMN / 2, HEAD - 26 + 15 * line, &style, word);
        }
    }
    for (row, plate) in (0..).zip(&HALL) {
        let middle = HEAD + ROW * row + ROW / 2 + 4;
        let ours = !plate.is_published();
        write(20, middle, &format!(r#"font-size="13" font-weight="bold" fill="{TEXT}""#), plate.name);
        let weight = if ours { "bold" } else { "normal" };
        let about = if ours { 58 } else { 46 };
        write(about, middle, &format!(r#"font-size="11" font-weight="{weight}" fill="{FAINT}""#), plate.about);
    }
    for (row, plate) in (0..).zip(&HALL) {
        for (column, fault) in (0..).zip(Fault::ALL) {
            let is_kept = table.cell(plate, fault).is_some_and(|cell| cell.broken.is_empty());
            let [paper, ink] = if is_kept { KEPT } else { BROKEN };
            let (x, y) = (LEFT + COLUMN * column, HEAD + ROW * row);
            let (w, h) = (COLUMN - 3, ROW - 3);
            let _ = writeln!(svg, r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3" fill="{paper}"/>"#);
            let (x, y, text) = (x + w / 2, y + h / 2 + 5, table.text(plate, fault));
            let style = format!(r#"font-size="13" text-anchor="middle" fill="{ink}""#);
            let _ = writeln!(svg, r#"<text x="{x}" y="{y}" {style}>{text}</text>"#);
        }
    }
    let names: Vec<_> = table.broken().iter().map(ToString::to_string).collect();
    for (line, names) in (0..).zip(names.chunks(names.len().div_ceil(2).max(1))) {
        let y = HEAD + ROW * rows + 26 + 18 * line;
        let text = names.join("  ·  ");
        let _ = writeln!(svg, r#"<text x="20" y="{y}" font-size="12" fill="{FAINT}">{text}</text>"#);
    }
    svg.push_str("</svg>\n");
    svg
}
