//! The searches that are worth their time: each is exhausted, whatever the order of its steps.

use stateright::{Checker, Model};

use crate::{CLAIM, Faults, LEASE, Protocol, Rule, Terms};

/// A lease that is renewed as long as the body runs.
pub const RENEWED: Terms = Terms { lease: LEASE, renew: true, fenced: false };
/// A lease that is not.
pub const SHORT: Terms = Terms { lease: CLAIM, renew: false, fenced: false };
/// The same, with a fencing token for each hold.
pub const FENCED: Terms = Terms { fenced: true, ..SHORT };

/// Nothing goes wrong.
pub const NO_FAULTS: Faults = Faults {
    lags: 0,
    early_ends: 0,
    lost_pushes: 0,
    breaks: 0,
    crashes: 0,
    vanishes: 0,
    cancels: 0,
    shutdowns: 0,
    forces: 0,
    stalls: 0,
    late_tasks: 0,
    nested: 0,
    lingers: 0,
    uncounted: 0,
};

impl Protocol {
    /// Processes whose tasks want the lock once each and wait for ever.
    #[must_use]
    pub fn of(processes: usize, tasks: &[Terms], faults: Faults) -> Self {
        Self { processes, tasks: tasks.to_vec(), rounds: 1, patience: None, deletes: false, faults, without: None }
    }

    /// Each task wants the lock so often.
    #[must_use]
    pub fn rounds(self, rounds: u8) -> Self {
        Self { rounds, ..self }
    }

    /// Each task waits so long.
    #[must_use]
    pub fn patience(self, ticks: u8) -> Self {
        Self { patience: Some(ticks), ..self }
    }

    /// Locks that nobody is known to wait for are deleted without a script.
    #[must_use]
    pub fn deleting(self) -> Self {
        Self { deletes: true, ..self }
    }

    /// Whether processes wait for one another.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.processes > 1
    }

    /// A rule is missing.
    #[must_use]
    pub fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }
}

/// The properties that a search has seen broken.
pub fn broken<M>(checker: &impl Checker<M>) -> Vec<&'static str>
where
    M: Model<State: Clone + PartialEq + std::fmt::Debug + std::hash::Hash, Action: Clone + PartialEq + std::fmt::Debug>,
{
    let must = checker.model().properties().into_iter().filter(|property| property.expectation.discovery_is_failure());
    must.map(|property| property.name).filter(|name| checker.discovery(name).is_some()).collect()
}

/// What CI exhausts.
pub const EXHAUSTED: [&str; 24] = [
    "three processes",
    "two tasks each",
    "three rounds",
    "pauses",
    "late renewals",
    "broken connections",
    "a broken connection among three",
    "crashes",
    "timeouts",
    "cancelled",
    "shutdown",
    "released by force",
    "nested",
    "slow scripts",
    "late tasks",
    "late tasks of one process",
    "a late task and a broken connection",
    "uncounted",
    "lingering",
    "lingering and a broken connection",
    "lingering and a crash",
    "deleted without a script",
    "deleted over a broken connection",
    "deleted by a process that crashes",
];

/// One of them.
#[must_use]
pub fn exhausted(name: &str) -> Option<Protocol> {
    Some(match name {
        "three processes" => Protocol::of(3, &[FENCED], Faults { lags: 1, early_ends: 1, ..NO_FAULTS }),
        "two tasks each" => Protocol::of(2, &[RENEWED, FENCED], NO_FAULTS),
        "three rounds" => Protocol::of(2, &[FENCED], NO_FAULTS).rounds(3),
        "pauses" => Protocol::of(2, &[FENCED], Faults { lags: 3, early_ends: 1, ..NO_FAULTS }),
        "late renewals" => Protocol::of(2, &[RENEWED], Faults { lags: 2, ..NO_FAULTS }),
        "broken connections" => Protocol::of(2, &[FENCED], Faults { lags: 1, breaks: 2, ..NO_FAULTS }),
        "a broken connection among three" => Protocol::of(3, &[FENCED], Faults { breaks: 1, ..NO_FAULTS }),
        "crashes" => Protocol::of(3, &[FENCED], Faults { crashes: 1, vanishes: 1, lost_pushes: 1, ..NO_FAULTS }),
        "timeouts" => Protocol::of(2, &[FENCED], Faults { breaks: 1, ..NO_FAULTS }).patience(1),
        "cancelled" => Protocol::of(2, &[SHORT], Faults { cancels: 1, ..NO_FAULTS }).rounds(2),
        "shutdown" => Protocol::of(3, &[SHORT], Faults { cancels: 1, shutdowns: 1, ..NO_FAULTS }),
        // A lag more, and the mark may end before the holder hears of it.
        "released by force" => Protocol::of(2, &[RENEWED], Faults { forces: 1, lags: 1, ..NO_FAULTS }),
        "nested" => Protocol::of(1, &[FENCED, SHORT, FENCED], Faults { cancels: 1, nested: 1, ..NO_FAULTS }),
        "slow scripts" => Protocol::of(2, &[FENCED], Faults { stalls: 3, early_ends: 1, ..NO_FAULTS }),
        "late tasks" => Protocol::of(2, &[SHORT, SHORT], Faults { late_tasks: 1, ..NO_FAULTS }),
        "late tasks of one process" => Protocol::of(1, &[SHORT, FENCED, FENCED], Faults { late_tasks: 2, ..NO_FAULTS }),
        "a late task and a broken connection" => {
            Protocol::of(2, &[FENCED], Faults { late_tasks: 1, breaks: 1, ..NO_FAULTS })
        }
        "uncounted" => Protocol::of(3, &[FENCED], Faults { uncounted: 1, ..NO_FAULTS }),
        "lingering" => Protocol::of(2, &[FENCED], Faults { lingers: 2, lags: 1, ..NO_FAULTS }).rounds(2),
        "lingering and a broken connection" => Protocol::of(2, &[SHORT], Faults { lingers: 1, breaks: 1, ..NO_FAULTS }),
        "lingering and a crash" => {
            let faults = Faults { lingers: 1, crashes: 1, lost_pushes: 1, forces: 1, ..NO_FAULTS };
            Protocol::of(2, &[SHORT], faults).rounds(2)
        }
        "deleted without a script" => Protocol::of(3, &[SHORT], Faults { lags: 1, ..NO_FAULTS }).deleting(),
        "deleted over a broken connection" => {
            Protocol::of(2, &[SHORT], Faults { breaks: 1, late_tasks: 1, ..NO_FAULTS }).deleting()
        }
        "deleted by a process that crashes" => {
            Protocol::of(3, &[SHORT], Faults { crashes: 1, lost_pushes: 1, ..NO_FAULTS }).deleting()
        }
        _ => return None,
    })
}

/// The smallest search that shows what a rule is for, and the number of the promise that breaks first without it.
#[must_use]
pub fn shown(rule: Rule) -> Protocol {
    let one = |tasks: &[Terms], faults| Protocol::of(1, tasks, faults);
    let two = |tasks: &[Terms], faults| Protocol::of(2, tasks, faults);
    let three = |tasks: &[Terms], faults| Protocol::of(3, tasks, faults);
    match rule {
        Rule::TakeBack => one(&[SHORT], Faults { cancels: 1, ..NO_FAULTS }),
        Rule::NotAfter => one(&[FENCED], Faults { breaks: 1, ..NO_FAULTS }).patience(1),
        Rule::CanBeTold => three(&[SHORT], Faults { crashes: 1, ..NO_FAULTS }),
        Rule::QueueFirst => three(&[FENCED], Faults { crashes: 1, ..NO_FAULTS }),
        Rule::AskAgain => two(&[SHORT], Faults { crashes: 1, ..NO_FAULTS }),
        Rule::NearIsTold => three(&[RENEWED], Faults { lost_pushes: 1, ..NO_FAULTS }),
        Rule::OnlyLonger => two(&[RENEWED, FENCED], Faults { early_ends: 1, ..NO_FAULTS }),
        Rule::OneReading => three(&[SHORT], Faults { stalls: 1, early_ends: 1, ..NO_FAULTS }),
        Rule::FromSending | Rule::OwnersToken => two(&[SHORT], Faults { lags: 2, ..NO_FAULTS }),
        Rule::WriteBack => one(&[FENCED, FENCED], Faults { breaks: 1, cancels: 1, ..NO_FAULTS }).rounds(2),
        Rule::NestedFences => one(&[FENCED, SHORT, FENCED], Faults { cancels: 1, nested: 1, ..NO_FAULTS }).rounds(2),
        Rule::Claims => two(&[SHORT], Faults { breaks: 1, ..NO_FAULTS }),
        Rule::StrayGrants => two(&[SHORT], Faults { cancels: 1, breaks: 1, ..NO_FAULTS }),
        Rule::LookFirst => one(&[SHORT], NO_FAULTS),
        Rule::DropFirst => two(&[SHORT], Faults { shutdowns: 1, ..NO_FAULTS }),
        Rule::Drift => two(&[SHORT], Faults { early_ends: 1, ..NO_FAULTS }),
        Rule::DatedGrants => two(&[SHORT, SHORT], Faults { lags: 1, early_ends: 1, cancels: 1, ..NO_FAULTS }),
        Rule::CountedGrants => three(&[SHORT], Faults { uncounted: 1, ..NO_FAULTS }),
        Rule::StaysForced => two(&[SHORT], Faults { forces: 1, ..NO_FAULTS }),
        Rule::LostIsNoStray => three(&[SHORT], Faults { shutdowns: 1, ..NO_FAULTS }),
        Rule::FreshFences => two(&[FENCED], Faults { lags: 3, early_ends: 1, ..NO_FAULTS }),
        Rule::LookBehind => two(&[SHORT], Faults { lost_pushes: 1, ..NO_FAULTS }).deleting(),
        Rule::TimeLeft => one(&[SHORT], Faults { lags: 1, ..NO_FAULTS }),
        Rule::OwnFence => one(&[FENCED, FENCED], NO_FAULTS),
        Rule::NewToken | Rule::NobodyLeft => two(&[SHORT], NO_FAULTS).rounds(2),
        Rule::Streak => two(&[SHORT, SHORT, SHORT], NO_FAULTS),
        Rule::StreakOfDrops => two(&[SHORT], NO_FAULTS).rounds(3),
        Rule::WholeLease => one(&[SHORT, SHORT], NO_FAULTS),
        Rule::LateTurn | Rule::UnreadAnswer => two(&[SHORT], Faults { late_tasks: 1, ..NO_FAULTS }),
        Rule::StaleTurn => one(&[SHORT, SHORT], Faults { late_tasks: 1, ..NO_FAULTS }),
        Rule::LingerYields => two(&[SHORT], Faults { lingers: 1, ..NO_FAULTS }),
    }
    .without(rule)
}
