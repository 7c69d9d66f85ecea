//! Draws a part of a history as text: a lane for each task, one for the server, one for the faults.

use std::fmt::Write as _;

use super::checks::Violation;
use super::claims::{Attempt, History};
use super::event::NEVER;
use super::owners::End;

const WIDTH: u64 = 100;
const MOST_LANES: usize = 24;
const MOST_LEASES: usize = 20;

/// Draws the history around a violation.
#[must_use]
pub fn draw(history: &History, violation: &Violation) -> String {
    let (from, to) = violation.range;
    let mut text = format!("{}: {}\n", violation.check, violation.text);
    if to <= from {
        return text;
    }
    let canvas = Canvas { from, to };
    let _ = writeln!(
        text,
        "  {} ms from {from} ns on; `.` waits, `=` holds, `-` not released yet",
        (to - from) / 1_000_000
    );
    if let Some(key) = &violation.key {
        let shown = |attempt: &&Attempt| attempt.key == *key && attempt.invoked < to && over(history, attempt) > from;
        let shown: Vec<_> = history.attempts.iter().filter(shown).collect();
        canvas.tasks(history, &shown, &mut text);
        canvas.server(history, key, &mut text);
    }
    canvas.faults(history, &mut text);
    text
}

fn over(history: &History, attempt: &Attempt) -> u64 {
    let done = attempt.claim.as_ref().map_or(attempt.returned(), super::claims::Claim::over);
    done.or(history.killed.get(&attempt.process).copied()).unwrap_or(history.last())
}

struct Canvas {
    from: u64,
    to: u64,
}

impl Canvas {
    fn column(&self, at: u64) -> usize {
        let at = at.clamp(self.from, self.to) - self.from;
        let column = u128::from(at) * u128::from(WIDTH - 1) / u128::from(self.to - self.from);
        usize::try_from(column).unwrap_or_default()
    }

    fn paint(&self, lane: &mut [char], range: (u64, u64), symbol: char) {
        // A range that is known only roughly may end before it starts.
        lane[self.column(range.0)..=self.column(range.1.max(range.0))].fill(symbol);
    }

    fn row(name: &str, lane: &[char], note: &str) -> String {
        format!("  {name:>10} |{}| {note}\n", lane.iter().collect::<String>())
    }

    fn empty() -> Vec<char> {
        vec![' '; usize::try_from(WIDTH).unwrap_or_default()]
    }

    fn tasks(&self, history: &History, attempts: &[&Attempt], text: &mut String) {
        let mut lanes: Vec<(String, Vec<&Attempt>)> = Vec::new();
        for attempt in attempts {
            let name = format!("{}/{}", attempt.process, attempt.task);
            match lanes.iter_mut().find(|(other, _)| *other == name) {
                Some((_, own)) => own.push(attempt),
                None => lanes.push((name, vec![attempt])),
            }
        }
        // Tasks with holds come before tasks that only wait.
        lanes.sort_by_key(|(_, own)| own.iter().all(|attempt| attempt.claim.is_none()));
        let left_out = lanes.len().saturating_sub(MOST_LANES);
        for (name, own) in lanes.into_iter().take(MOST_LANES) {
            let (mut lane, mut note) = (Self::empty(), String::new());
            for attempt in &own {
                let returned = attempt.returned().unwrap_or(over(history, attempt));
                self.paint(&mut lane, (attempt.invoked, returned), '.');
                if let Some(claim) = &attempt.claim {
                    self.paint(&mut lane, (claim.end(), over(history, attempt)), '-');
                    self.paint(&mut lane, claim.range(), '=');
                }
            }
            if let [only] = own.as_slice() {
                note = story(only, self.from);
            }
            text.push_str(&Self::row(&name, &lane, &note));
        }
        if left_out > 0 {
            let _ = writeln!(text, "  and {left_out} tasks more");
        }
    }

    fn server(&self, history: &History, key: &str, text: &mut String) {
        let owners = history.owners();
        let leases = owners.get(key).map(Vec::as_slice).unwrap_or_default();
        let shown = leases.iter().filter(|lease| lease.from.0 < self.to && lease.to.1 > self.from);
        for lease in shown.take(MOST_LEASES) {
            let mut lane = Self::empty();
            self.paint(&mut lane, (lease.from.1, lease.to.0.min(history.last())), '#');
            let end = match lease.end {
                End::Open => "",
                End::Expired => ", expired",
                End::Deleted => ", deleted",
                End::Replaced => ", passed on",
                End::Forgotten => ", forgotten",
            };
            let until = if lease.until == NEVER { "without end".to_owned() } else { self.at(lease.until) };
            let note = format!("{} until {until}{end} at {}", lease.token, self.at(lease.to.1.min(history.last())));
            text.push_str(&Self::row("server", &lane, &note));
        }
    }

    fn faults(&self, history: &History, text: &mut String) {
        for fault in history.faults_in((self.from, self.to)).take(MOST_LANES) {
            let mut lane = Self::empty();
            self.paint(&mut lane, fault.range, '!');
            text.push_str(&Self::row(&fault.target, &lane, &fault.kind));
        }
        let mut killed: Vec<_> = history.killed.iter().filter(|(_, at)| (self.from..self.to).contains(at)).collect();
        killed.sort();
        for (process, at) in killed {
            let mut lane = Self::empty();
            self.paint(&mut lane, (*at, *at), 'X');
            text.push_str(&Self::row(process, &lane, "killed"));
        }
    }

    fn at(&self, instant: u64) -> String {
        since(self.from, instant)
    }
}

/// The instants of one attempt, counted from the start of the drawing.
fn story(attempt: &Attempt, start: u64) -> String {
    let Some(claim) = &attempt.claim else {
        return attempt.outcome.as_ref().map_or(String::new(), |(at, how, text)| {
            format!("{how:?} at {} (timeout {} ms) {text}", since(start, *at), attempt.wanted.timeout)
        });
    };
    let mut note = format!("granted {}, good until {}", since(start, claim.from), since(start, claim.until));
    let events = [("lapsed", claim.lapsed), ("released", claim.released), ("killed", claim.killed)];
    for (name, at) in events.into_iter().filter_map(|(name, at)| Some((name, at?))) {
        let _ = write!(note, ", {name} {}", since(start, at));
    }
    if let Some((at, how)) = claim.answer {
        let _ = write!(note, ", {how:?} {}", since(start, at));
    }
    if let Some(fence) = claim.fence {
        let _ = write!(note, ", fence {fence}");
    }
    note
}

/// The milliseconds since the start; negative before it.
fn since(start: u64, at: u64) -> String {
    let (sign, micros) = if at < start { ("-", (start - at) / 1000) } else { ("", (at - start) / 1000) };
    format!("{sign}{}.{:03}", micros / 1000, micros % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::judge;
    use crate::event::What;
    use crate::sample::{BOUNDS, Sample};

    #[test]
    fn the_shortest_overlap_is_drawn_with_a_lane_for_each_holder() {
        let sample = Sample::default().held("a", 10, 200).held("b", 150, 220).held("c", 300, 340).held("d", 330, 350);
        let history = sample.and(360, "harness", What::Healed).history();
        let found = judge(&history, &BOUNDS);
        let drawn = draw(&history, &found[0]);
        assert!(drawn.contains("c/0 and d/0 both hold soak:k for 10.000 ms"), "{drawn}");
        let lanes: Vec<_> = drawn.lines().filter(|line| line.contains("=|") || line.contains("= ")).collect();
        assert!(lanes.len() >= 2 && !drawn.contains("a/0"), "{drawn}");
    }
}
