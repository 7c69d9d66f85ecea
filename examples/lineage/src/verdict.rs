//! [`Promise`]: which promise of `docs/guarantees.md` a finding of the checker breaks.

use std::fmt;

use history::owners::{End, Owned};
use history::{History, Violation};

/// A promise of `docs/guarantees.md`, with its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the page")]
pub enum Promise {
    Exclusion = 1,
    Fencing = 2,
    Ownership = 3,
    Progress = 4,
    NoOrphans = 5,
    Order = 6,
    Time = 7,
    NoUnprotectedWork = 8,
    NoLeaks = 9,
}

impl Promise {
    /// All promises whose breach the checker can see here.
    pub const ALL: [Self; 9] = [
        Self::Exclusion,
        Self::Fencing,
        Self::Ownership,
        Self::Progress,
        Self::NoOrphans,
        Self::Order,
        Self::Time,
        Self::NoUnprotectedWork,
        Self::NoLeaks,
    ];

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The promise, in a sentence.
    #[must_use]
    pub fn means(self) -> &'static str {
        match self {
            Self::Exclusion => "Holds of one key never overlap.",
            Self::Fencing => "The fencing tokens of one key always grow.",
            Self::Ownership => "Only the owner's token releases or renews.",
            Self::Progress => "A crash delays others by a known time, and not for longer.",
            Self::NoOrphans => "A failed acquire leaves nothing that blocks others.",
            Self::Order => "Waiters are served first come, first served.",
            Self::Time => "An acquire returns in time.",
            Self::NoUnprotectedWork => "No step of a body starts after the deadline of its hold.",
            Self::NoLeaks => "When all is released, nothing is left behind.",
        }
    }

    /// The promise that `violation` breaks.
    pub(crate) fn broken_by(violation: &Violation, history: &History) -> Self {
        match violation.check.split(' ').next() {
            Some("C1") => Self::Exclusion,
            Some("C2" | "C3") => Self::Fencing,
            Some("C4") if violation.check.ends_with("in time") => Self::Time,
            Some("C4" | "C5") => Self::Progress,
            Some("C6") if is_of_the_killed(violation, history) => Self::Progress,
            Some("C6") => Self::NoOrphans,
            Some("C7") if violation.check.ends_with("by the server") => unbacked(violation, history),
            Some("C7") => Self::Ownership,
            // What a caller learns of a lost hold.
            Some("C8") => Self::NoUnprotectedWork,
            Some("C9") => Self::NoLeaks,
            _ => Self::Order,
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Exclusion => "exclusion",
            Self::Fencing => "fencing",
            Self::Ownership => "ownership",
            Self::Progress => "progress",
            Self::NoOrphans => "no orphans",
            Self::Order => "order",
            Self::Time => "time",
            Self::NoUnprotectedWork => "no unprotected work",
            Self::NoLeaks => "no leaks",
        };
        write!(f, "{} {name}", self.number())
    }
}

/// The last lease of the violation's lock, among those that `is_it`, that began until an instant.
fn lease_until(violation: &Violation, history: &History, at: u64, is_it: impl Fn(&Owned) -> bool) -> Option<Owned> {
    let owners = history.owners();
    let leases = owners.get(violation.key.as_deref()?)?;
    leases.iter().rev().find(|lease| lease.from.0 <= at && is_it(lease)).cloned()
}

fn is_of_the_killed(violation: &Violation, history: &History) -> bool {
    let lease = lease_until(violation, history, violation.range.0, |_| true);
    lease.is_some_and(|lease| lease.process().is_some_and(|process| history.killed.contains_key(process)))
}

/// A hold that the server does not know: its lease expired under the body, or somebody else removed it, or the hold was
/// granted what others had.
fn unbacked(violation: &Violation, history: &History) -> Promise {
    let key = violation.key.as_deref().unwrap_or_default();
    let is_it = |range: (u64, &str)| range == (violation.range.0, key);
    let attempt = history.attempts.iter().find(|attempt| is_it((attempt.invoked, &attempt.key)));
    let own = attempt.and_then(|attempt| {
        let granted = attempt.claim.as_ref()?.from;
        lease_until(violation, history, granted, |lease| lease.is_of(attempt) && lease.to.1 >= attempt.invoked)
    });
    match own.map(|lease| lease.end) {
        Some(End::Expired) => Promise::NoUnprotectedWork,
        Some(End::Deleted | End::Replaced) => Promise::Ownership,
        Some(End::Open | End::Forgotten) | None => Promise::Exclusion,
    }
}
