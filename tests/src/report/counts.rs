//! [`Counts`]: the numbers of a history.

use std::collections::BTreeMap;

use history::event::How;
use history::{Attempt, Claim, History, Share, What};

use crate::soak::Report;

/// What is counted, in the order of the page.
pub const ROWS: &[&str] = &[
    "rounds",
    "locks asked for",
    "holds",
    "holds beside others (readers, permits)",
    "hand-overs inside a process",
    "hand-offs between processes",
    "told: busy",
    "told: unreachable",
    "told: lost",
    "given up by the caller",
    "outcome not known: the process was killed",
    "fenced writes that were accepted",
    "fenced writes that were refused",
    "fenced writes without an answer",
    "overlaps that the place allows",
    "things that were left behind",
    "violations",
];

/// How often each of [`ROWS`] was seen.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// The count of a row; 0 if it was never seen.
    #[must_use]
    pub fn of(&self, row: &str) -> u64 {
        self.0.get(row).copied().unwrap_or_default()
    }

    /// Adds a round and the report of its checks.
    pub fn add(&mut self, history: &History, report: &Report) {
        self.count("rounds", 1);
        for attempt in &history.attempts {
            self.count("locks asked for", 1);
            match attempt.how() {
                Some(How::Done) => self.count("holds", 1),
                Some(How::Busy) => self.count("told: busy", 1),
                Some(How::Unreachable | How::Failed) => self.count("told: unreachable", 1),
                Some(How::Lost) => self.count("told: lost", 1),
                Some(How::Cancelled) => self.count("given up by the caller", 1),
                None => self.count("outcome not known: the process was killed", 1),
            }
            let Some(claim) = &attempt.claim else { continue };
            self.count("holds beside others (readers, permits)", u64::from(attempt.wanted.share != Share::Alone));
            self.count("told: lost", u64::from(claim.answer.is_some_and(|(_, how)| how == How::Lost)));
            self.count("outcome not known: the process was killed", u64::from(claim.answer.is_none()));
        }
        for attempts in history.by_key().values() {
            for pair in history.grants(attempts).windows(2) {
                if let Some(row) = passed_on(pair[0], pair[1]) {
                    self.count(row, 1);
                }
            }
        }
        for event in &history.events {
            if let What::Opened { accepted, .. } | What::Wrote { accepted, .. } = event.what {
                let row = match accepted {
                    Some(true) => "fenced writes that were accepted",
                    Some(false) => "fenced writes that were refused",
                    None => "fenced writes without an answer",
                };
                self.count(row, 1);
            }
        }
        self.count("overlaps that the place allows", report.allowed as u64);
        self.count("things that were left behind", report.leaks);
        self.count("violations", report.violations.len() as u64);
    }

    fn count(&mut self, row: &'static str, more: u64) {
        debug_assert!(ROWS.contains(&row), "{row} is not on the page");
        *self.0.entry(row).or_default() += more;
    }
}

/// An exclusive hold passes the lock on to the next one if that one waited during the hold.
fn passed_on(held: (&Attempt, &Claim), next: (&Attempt, &Claim)) -> Option<&'static str> {
    let alone = [held.0, next.0].iter().all(|attempt| attempt.wanted.share == Share::Alone);
    let waited = next.0.invoked < held.1.end() && next.1.from > held.1.end();
    let same = held.0.process == next.0.process;
    (alone && waited).then_some(if same { "hand-overs inside a process" } else { "hand-offs between processes" })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use history::{Event, Wanted};

    fn counts(events: &[(u64, &str, What)]) -> Counts {
        let event = |(t, process, what): &(u64, &str, What)| Event {
            t: *t * 1_000_000,
            process: (*process).to_owned(),
            task: 0,
            what: what.clone(),
        };
        let mut counts = Counts::default();
        let report = Report { longest_wait: Duration::ZERO, ..Report::default() };
        counts.add(&History::of(events.iter().map(event).collect()), &report);
        counts
    }

    fn asks(attempt: u32) -> What {
        What::Acquire { attempt, key: "k".into(), wanted: Wanted { expire: 1000, ..Wanted::default() } }
    }

    fn granted(attempt: u32) -> What {
        What::Granted { attempt, until: u64::MAX, fence: None }
    }

    fn releases(attempt: u32) -> What {
        What::Release { attempt, dropped: false }
    }

    #[test]
    fn a_lock_is_handed_on_to_a_task_that_waited_for_it() {
        let held = |waiter: &'static str, asked| {
            let over = What::Released { attempt: 1, how: How::Done, text: String::new() };
            let first = [(1, "a", asks(1)), (2, "a", granted(1)), (5, "a", releases(1)), (6, "a", over)];
            counts(&[&first[..], &[(asked, waiter, asks(2)), (9, waiter, granted(2))]].concat())
        };
        let told =
            |counts: &Counts| ["hand-overs inside a process", "hand-offs between processes"].map(|row| counts.of(row));
        assert_eq!(told(&held("a", 3)), [1, 0]);
        assert_eq!(told(&held("b", 3)), [0, 1]);
        assert_eq!(told(&held("b", 7)), [0, 0]);
        assert_eq!(held("b", 3).of("holds"), 2);
        assert_eq!(held("b", 3).of("outcome not known: the process was killed"), 1);
    }

    #[test]
    fn each_refusal_has_its_row() {
        let refused =
            |how| counts(&[(1, "a", asks(1)), (2, "a", What::Refused { attempt: 1, how, text: String::new() })]);
        for (how, row) in [
            (How::Busy, "told: busy"),
            (How::Unreachable, "told: unreachable"),
            (How::Cancelled, "given up by the caller"),
        ] {
            assert_eq!(refused(how).of(row), 1, "{row}");
        }
    }
}
