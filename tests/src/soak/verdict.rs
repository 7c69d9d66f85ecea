//! [`Verdict`]: what the checks found in a round, less what a failover may cost.

use std::collections::HashMap;

use super::lookout::UNPLANNED;
use super::plan::Plan;
use super::strike::Place;
use history::checks::{claims_never_overlap, errors_are_true, fences_increase, judge};
use history::event::span;
use history::{Bounds, History, Violation};

/// How soon after a fault all have noticed what it has cost.
const NOTICED: std::time::Duration = std::time::Duration::from_secs(3);

const OVERLAPS: &str = "C1 claims never overlap";
const FENCES: &str = "C2 fences increase";
const ERRORS: &str = "C8 errors are true";

/// What was found.
#[derive(Debug)]
pub struct Verdict {
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// How often two held one lock when a server may have forgotten it.
    pub allowed: usize,
}

impl Verdict {
    /// Judges a round.
    ///
    /// A master that fails may take locks with it that its replica did not have, so that a hold ends early or overlaps
    /// with the next one; fencing tokens grow all the same. On a quorum, the loss of one server's data may end a hold
    /// that began without another one, and nothing more. What is given to the next master without a fault, or moved
    /// with its slot, is not lost.
    #[must_use]
    pub fn of(plan: &Plan, history: &History, bounds: &Bounds) -> Self {
        let strict = Bounds { forgetful: false, ..*bounds };
        let lenient = Bounds { forgetful: true, ..*bounds };
        if bounds.forgetful {
            let allowed = claims_never_overlap(history, &strict).len();
            return Self { violations: judge(history, bounds), allowed };
        }
        let excuses = excuses(plan.place, history);
        let excused = |violation: &Violation| {
            let (from, to) = violation.range;
            excuses.iter().any(|excuse| excuse.0 < to && from < excuse.1)
        };
        // Of errors only a loss before the deadline has an excuse: what a forgetful server does not explain, stays.
        let inexcusable: Vec<_> = errors_are_true(history, &lenient).into_iter().map(|error| error.text).collect();
        let (mut violations, mut allowed) = (Vec::new(), 0);
        for violation in judge(history, &strict) {
            let is_allowed = match violation.check {
                OVERLAPS if plan.place != Place::Quorum => excused(&violation),
                ERRORS => excused(&violation) && !inexcusable.contains(&violation.text),
                // Below, with those left out that can't be compared.
                FENCES => true,
                _ => false,
            };
            allowed += usize::from(is_allowed && violation.check == OVERLAPS);
            if !is_allowed {
                violations.push(violation);
            }
        }
        violations.extend(fences_grow(plan.place, history, &strict));
        Self { violations, allowed }
    }
}

/// When a lock may have been forgotten, and its holder may not know.
fn excuses(place: Place, history: &History) -> Vec<(u64, u64)> {
    let forget: &[&str] = match place {
        Place::Redis => &[],
        Place::Sentinel => &["FailOver", "KillMaster", "StopMaster", "StopMasterUntilReplaced", UNPLANNED],
        Place::Cluster => &["KillMaster", "StopMaster", "StopMasterUntilReplaced", UNPLANNED],
        Place::Quorum => &["RestartOneEmpty"],
    };
    let faults = history.faults.iter().filter(|fault| forget.contains(&&*fault.kind));
    faults.map(|fault| (fault.range.0, fault.range.1 + span(NOTICED))).collect()
}

/// Fencing tokens come with a lease, and a process that does not know yet that its lease was forgotten hands it on with
/// tokens of before: those are compared with none but for being different.
#[must_use]
pub fn fences_grow(place: Place, history: &History, bounds: &Bounds) -> Vec<Violation> {
    let excuses = excuses(place, history);
    let mut of_leases = history.clone();
    // When the lease of the last hold of each process and lock began, and when that hold is over.
    let mut last: HashMap<(String, String), (u64, u64)> = HashMap::new();
    let mut granted: Vec<_> = of_leases.attempts.iter_mut().filter(|attempt| attempt.claim.is_some()).collect();
    granted.sort_by_key(|attempt| attempt.claim.as_ref().map(|claim| claim.from));
    for attempt in granted {
        let Some(claim) = &mut attempt.claim else { continue };
        let key = (attempt.process.clone(), attempt.key.clone());
        let handed_on = last.get(&key).filter(|(_, over)| attempt.invoked < *over).map(|(began, _)| *began);
        let began = handed_on.unwrap_or(claim.from);
        last.insert(key, (began, claim.over().unwrap_or(u64::MAX)));
        if handed_on.is_some() && excuses.iter().any(|excuse| excuse.0 < claim.from && began < excuse.1) {
            claim.fence = None;
        }
    }
    let lenient = Bounds { forgetful: true, ..*bounds };
    let found = fences_increase(&of_leases, bounds).into_iter().chain(fences_increase(history, &lenient));
    found.map(|violation| Violation { check: FENCES, ..violation }).collect()
}
