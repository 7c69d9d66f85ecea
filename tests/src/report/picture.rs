//! [`draw`]: a failover step by step, as SVG. Each step is a column; the widths show no times.

use std::fmt::Write as _;

use history::checks::{claims_never_overlap, the_register_loses_nothing};
use history::{Attempt, Bounds, Claim, History, What};

use super::failover::{KILLED, ON_ITS_WAY};

/// As wide as the text of a page.
const WIDTH: usize = 720;
const LEFT: usize = 118;
const RIGHT: usize = 20;
const HEAD: usize = 66;
const LANE: usize = 46;
const BAR: usize = 24;
const HEIGHT: usize = HEAD + 5 * LANE + 40;

const TEXT: &str = "#1f2328";
const FAINT: &str = "#59636e";
const HELD: &str = "#2f7d6b";
const STALE: &str = "#d9480f";
const WAITS: &str = "#d8dee4";
const REFUSED: &str = "#b42318";

/// The picture of a failover that was [played](super::failover::play).
#[must_use]
pub fn draw(history: &History, fenced: bool, bounds: &Bounds) -> String {
    let steps = Steps::of(history);
    let title = if fenced { "A failover, with fencing tokens" } else { "The same failover, without fencing tokens" };
    let mut card = Card::new(title, "from left to right, step by step; the widths are no times");
    card.label(0, "servers");
    let killed = fault(history, KILLED);
    card.bar(0, (steps.first(), steps.at(killed.0)), FAINT, "the master has the lock");
    card.bar(0, (steps.at(killed.1), steps.last()), FAINT, "its replica, promoted, has no such lock");
    for (lane, name) in [(1, "first"), (3, "second")] {
        card.label(lane, &format!("{name} holder"));
        for (attempt, claim) in history.attempts.iter().filter_map(|attempt| Some((attempt, attempt.claim.as_ref()?))) {
            if attempt.process == name {
                card.hold(lane, &steps, attempt, claim);
            }
        }
    }
    card.label(2, "its write");
    let way = fault(history, ON_ITS_WAY);
    card.bar(2, (steps.at(way.0), steps.last()), STALE, "is on its way, and arrives at last");
    card.label(4, "the resource");
    for event in &history.events {
        card.note(&steps, event.t, &event.process, &event.what);
    }
    card.close(history, bounds)
}

fn fault(history: &History, kind: &str) -> (u64, u64) {
    let found = history.faults.iter().find(|fault| fault.kind == kind);
    found.map(|fault| fault.range).expect("every such history has this fault")
}

/// The relevant instants, in order.
struct Steps(Vec<u64>);

impl Steps {
    fn of(history: &History) -> Self {
        let claims = history.attempts.iter().filter_map(|attempt| attempt.claim.as_ref());
        let holds = claims.flat_map(|claim| [claim.from, claim.end()]);
        let asked = history.attempts.iter().map(|attempt| attempt.invoked);
        let faults = [fault(history, KILLED).0, fault(history, KILLED).1, fault(history, ON_ITS_WAY).0];
        let looks =
            history.events.iter().filter(|event| matches!(event.what, What::Opened { .. } | What::Wrote { .. }));
        let mut all: Vec<u64> = holds.chain(asked).chain(faults).chain(looks.map(|event| event.t)).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    fn at(&self, t: u64) -> usize {
        let step = self.0.iter().position(|step| *step >= t).unwrap_or(self.0.len() - 1);
        LEFT + (WIDTH - LEFT - RIGHT) * step / (self.0.len() - 1)
    }

    fn first(&self) -> usize {
        self.at(0)
    }

    fn last(&self) -> usize {
        self.at(u64::MAX)
    }
}

struct Card(String);

impl Card {
    fn new(title: &str, below: &str) -> Self {
        let mut card = Self(format!(
            r##"<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">
<rect x="0.5" y="0.5" width="{}" height="{}" rx="4" fill="#fcfdfe" stroke="#d8dee4"/>
"##,
            WIDTH - 1,
            HEIGHT - 1
        ));
        card.text(20, 30, &format!(r#"font-size="17" font-weight="bold" fill="{TEXT}""#), title);
        card.text(20, 50, &format!(r#"font-size="12" fill="{FAINT}""#), below);
        card
    }

    fn text(&mut self, x: usize, y: usize, style: &str, text: &str) {
        let _ = writeln!(self.0, r#"<text x="{x}" y="{y}" {style}>{text}</text>"#);
    }

    fn label(&mut self, lane: usize, text: &str) {
        self.text(20, HEAD + LANE * lane + 17, &format!(r#"font-size="12" fill="{TEXT}""#), text);
    }

    fn bar(&mut self, lane: usize, (from, to): (usize, usize), color: &str, text: &str) {
        let (y, width) = (HEAD + LANE * lane, to.saturating_sub(from).max(2));
        let _ = writeln!(self.0, r#"<rect x="{from}" y="{y}" width="{width}" height="{BAR}" rx="3" fill="{color}"/>"#);
        self.text(from + 6, y + 16, r##"font-size="11" fill="#ffffff""##, text);
    }

    /// From the request to the grant to the end of the hold.
    fn hold(&mut self, lane: usize, steps: &Steps, attempt: &Attempt, claim: &Claim) {
        self.bar(lane, (steps.at(attempt.invoked), steps.at(claim.from)), WAITS, "");
        let text =
            claim.fence.map_or_else(|| "holds".to_owned(), |fence| format!("holds, token …{:04}", fence % 10_000));
        self.bar(lane, (steps.at(claim.from), steps.at(claim.end())), HELD, &text);
    }

    /// A request to the resource.
    fn note(&mut self, steps: &Steps, t: u64, process: &str, what: &What) {
        let (text, accepted) = match what {
            What::Opened { accepted, .. } => (format!("{process} reads"), accepted),
            What::Wrote { accepted: Some(false), value, .. } => (format!("{value}: refused"), &Some(false)),
            What::Wrote { accepted, value, .. } => (format!("{process}: {value}"), accepted),
            _ => return,
        };
        let (x, y) = (steps.at(t), HEAD + 4 * LANE + 12);
        let color = if *accepted == Some(true) { HELD } else { REFUSED };
        let _ = writeln!(self.0, r#"<circle cx="{x}" cy="{y}" r="5" fill="{color}"/>"#);
        let anchor = if x + 40 > WIDTH - RIGHT { "end" } else { "middle" };
        let x = if anchor == "end" { WIDTH - 12 } else { x };
        // A write often follows a read at once, so keep their labels apart.
        let y = if matches!(what, What::Opened { .. }) { y - 10 } else { y + 20 };
        self.text(x, y, &format!(r#"font-size="11" text-anchor="{anchor}" fill="{color}""#), &text);
    }

    /// The checker's verdict on the history.
    fn close(mut self, history: &History, bounds: &Bounds) -> String {
        let overlap = !claims_never_overlap(history, bounds).is_empty();
        let lost = the_register_loses_nothing(history, bounds);
        let held = if overlap { "both held the lock at once" } else { "the holds did not overlap" };
        let wrote = lost.first().map_or("the resource lost nothing", |violation| violation.text.as_str());
        let color = if lost.is_empty() { HELD } else { REFUSED };
        let style = format!(r#"font-size="13" font-weight="bold" fill="{color}""#);
        self.text(20, HEIGHT - 18, &style, &format!("The checker: {held}; {wrote}."));
        self.0.push_str("</svg>\n");
        self.0
    }
}
