//! [`Output`]: results for users, and as JSON for programs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lock_runtime::LockInfo;
use serde::Serialize;

use crate::failure::Failure;

/// How results are printed. Only a terminal gets colours: anstream removes them elsewhere, and when `NO_COLOR` is set.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
}

pub(crate) const HEAD: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const DOUBT: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one value: as JSON in one line, or as the text.
    pub(crate) fn print(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json {
            let line = serde_json::to_string(value).map_err(|error| Failure::internal(&error))?;
            writeln!(anstream::stdout(), "{line}")?;
        } else {
            writeln!(anstream::stdout(), "{}", text().trim_end())?;
        }
        Ok(())
    }
}

/// A lock, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    pub(crate) name: String,
    /// The label of the holder's manager; null for another kind of client.
    pub(crate) holder: Option<String>,
    /// One label for each lease.
    pub(crate) holders: Vec<String>,
    /// The holder's note.
    pub(crate) note: Option<String>,
    /// How long the holder's process has wanted the lock, or held it; null if unknown.
    pub(crate) held_ms: Option<u64>,
    pub(crate) mode: String,
    /// Null for a lock that does not expire.
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) waiting: Vec<String>,
    pub(crate) forced: bool,
    /// The hold has ended, but others are still kept out.
    pub(crate) rests: bool,
    /// The hold was given away, and has not been adopted yet.
    pub(crate) awaits_adopter: bool,
}

impl From<LockInfo> for Lock {
    fn from(info: LockInfo) -> Self {
        let remaining = (info.remaining < Duration::MAX).then_some(info.remaining);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: info.key,
            holder: info.holder,
            holders: info.holders,
            note: info.note,
            held_ms: info.held_for.map(millis),
            mode: info.mode.to_string(),
            remaining_ms: remaining.map(millis),
            waiting: info.waiting,
            forced: info.is_forced,
            rests: info.rests,
            awaits_adopter: info.awaits_adopter,
        }
    }
}

impl Lock {
    pub(crate) fn holder_text(&self) -> String {
        let holder = match &self.holder {
            Some(_) if self.holders.len() > 1 => {
                self.holders.iter().map(|label| clean(label)).collect::<Vec<_>>().join(", ")
            }
            Some(label) if label.is_empty() => "a manager without a label".to_owned(),
            Some(label) => clean(label),
            None => "another kind of client".to_owned(),
        };
        match self {
            Self { forced: true, .. } => format!("{holder} (told to stop)"),
            Self { rests: true, .. } => format!("nobody, rests after {holder}"),
            Self { awaits_adopter: true, .. } => format!("nobody, waits for its adopter after {holder}"),
            _ => holder,
        }
    }

    pub(crate) fn note_text(&self) -> String {
        self.note.as_deref().map_or_else(|| "-".to_owned(), clean)
    }

    pub(crate) fn held_text(&self) -> String {
        self.held_ms.map_or_else(|| "-".to_owned(), |millis| brief(Duration::from_millis(millis)))
    }

    pub(crate) fn left_text(&self) -> String {
        self.remaining_ms.map_or_else(|| "no end".to_owned(), |millis| brief(Duration::from_millis(millis)))
    }
}

/// Control characters in other clients' texts must not reach the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

pub(crate) fn brief(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time.as_secs() {
        0 if time < Duration::from_millis(1) => format!("{} µs", time.as_micros()),
        0 => format!("{:.1} ms", seconds * 1000.0),
        1..=99 => format!("{seconds:.1} s"),
        100..=7199 => format!("{:.1} min", seconds / 60.0),
        7200..=172_799 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

/// A table with a bold head. The last column is not padded.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(head.get(column).map(|title| title.chars().count())).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let last = cells.len().saturating_sub(1);
        let mut line = String::new();
        for (number, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Writing to a `String` can't fail.
            let _ = if number == last { write!(line, "{cell}") } else { write!(line, "{cell:width$}  ") };
        }
        line
    };
    let titles: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let mut text = format!("{HEAD}{}{HEAD:#}\n", line(&titles));
    for row in rows {
        text += &line(row);
        text.push('\n');
    }
    text
}

pub(crate) fn lock_table(locks: &[Lock]) -> String {
    let row = |lock: &Lock| {
        let waiting = if lock.waiting.is_empty() { "-".to_owned() } else { lock.waiting.len().to_string() };
        let (name, mode) = (clean(&lock.name), lock.mode.clone());
        vec![name, lock.holder_text(), lock.held_text(), mode, lock.left_text(), waiting, lock.note_text()]
    };
    let rows: Vec<Vec<String>> = locks.iter().map(row).collect();
    table(&["NAME", "HOLDER", "HELD", "MODE", "LEFT", "WAITING", "NOTE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_from_elsewhere_has_no_control_characters() {
        assert_eq!(clean("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }

    #[test]
    fn a_time_is_brief() {
        for (millis, text) in
            [(0, "0 µs"), (12, "12.0 ms"), (2500, "2.5 s"), (120_000, "2.0 min"), (7_200_000, "2.0 h")]
        {
            assert_eq!(brief(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let text = table(&["A", "B"], &[vec!["long".to_owned(), "x".to_owned()]]);
        assert_eq!(text, format!("{HEAD}A     B{HEAD:#}\nlong  x\n"));
    }
}
