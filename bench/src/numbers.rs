//! Numbers as text.

use crate::stats::Sample;

/// The median, with the spread if there is one.
pub(crate) fn cell(sample: &Sample, spread: bool) -> String {
    if sample.is_empty() {
        return "–".to_owned();
    }
    let median = number(sample.median());
    let (low, high) = (number(sample.min()), number(sample.max()));
    if spread && low != high { format!("{median} ({low}–{high})") } else { median }
}

/// A round number, without the zeros that would show its precision.
pub(crate) fn round(value: f64) -> String {
    let digits = number(value);
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.').to_owned() } else { digits }
}

/// Three significant digits, but all digits before the point.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => {
            let digits = format!("{value:.0}");
            let (mut grouped, count) = (String::new(), digits.len());
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (count - place).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
