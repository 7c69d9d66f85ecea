//! [`Verdict`]: what the checks found in a round, without what a failover may cost.

use std::collections::HashMap;

use super::lookout::UNPLANNED;
use super::plan::Plan;
use super::strike::Place;
use history::checks::{claims_never_overlap, errors_are_true, fences_increase, judge};
use history::event::span;
use history::{Bounds, History, Violation};

/// After this time every holder has noticed what a fault cost.
const NOTICED: std::time::Duration = std::time::Duration::from_secs(3);

const OVERLAPS: &str = "C1 claims never overlap";
const FENCES: &str = "C2 fences increase";
const ERRORS: &str = "C8 errors are true";
/// The fault in which slots move to other masters.
const MOVES: &str = "MoveSlots";

/// The result of the checks.
#[derive(Debug)]
pub struct Verdict {
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// How often two holds overlapped when a server may have lost the lock.
    pub allowed: usize,
}

impl Verdict {
    /// Judges a round.
    ///
    /// A master that fails may lose locks that its replica did not have. Then a hold ends early or overlaps with the next
    /// one; fencing tokens grow anyway. On a quorum, the loss of one server's data may end a hold that was granted while
    /// another server was missing, and nothing more. A planned switch to another master, or a slot that moves, loses nothing.
    /// Where a replica confirms each grant, only a failover while slots move may lose one.
    #[must_use]
    pub fn of(plan: &Plan, history: &History, bounds: &Bounds) -> Self {
        let strict = Bounds { forgetful: false, ..*bounds };
        let lenient = Bounds { forgetful: true, ..*bounds };
        if bounds.forgetful {
            let allowed = claims_never_overlap(history, &strict).len();
            return Self { violations: judge(history, bounds), allowed };
        }
        let excuses = if plan.hosted && plan.place == Place::Cluster {
            failovers_in_moves(history)
        } else {
            excuses(plan.place, history)
        };
        let excused = |violation: &Violation| {
            let (from, to) = violation.range;
            excuses.iter().any(|excuse| excuse.0 < to && from < excuse.1)
        };
        // The only excusable error is a loss before the deadline. What a forgetful server does not explain remains a violation.
        let inexcusable: Vec<_> = errors_are_true(history, &lenient).into_iter().map(|error| error.text).collect();
        let (mut violations, mut allowed) = (Vec::new(), 0);
        for violation in judge(history, &strict) {
            let is_allowed = match violation.check {
                OVERLAPS if plan.place != Place::Quorum => excused(&violation),
                ERRORS => excused(&violation) && !inexcusable.contains(&violation.text),
                // Checked below, without the tokens that can't be compared.
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

/// The periods in which a server may have lost a lock without its holder's knowledge.
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

/// The periods in which a cluster may have lost a lock that a replica had confirmed.
fn failovers_in_moves(history: &History) -> Vec<(u64, u64)> {
    let of_kind =
        |kind: &'static str| history.faults.iter().filter(move |fault| fault.kind == kind).map(|fault| fault.range);
    let in_a_move = |failover: &(u64, u64)| of_kind(MOVES).any(|moved| moved.0 < failover.1 && failover.0 < moved.1);
    of_kind(UNPLANNED).filter(in_a_move).map(|failover| (failover.0, failover.1 + span(NOTICED))).collect()
}

/// Fencing tokens are reserved with a lease. A process that does not know yet that its lease was lost hands it on with tokens
/// reserved earlier. Those tokens need only be different from all others.
#[must_use]
pub fn fences_grow(place: Place, history: &History, bounds: &Bounds) -> Vec<Violation> {
    let excuses = excuses(place, history);
    let mut of_leases = history.clone();
    // For each process and lock: when the lease of its last hold began, and when that hold ended.
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
