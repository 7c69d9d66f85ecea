//! C8: what calls report is true.

use std::collections::HashMap;
use std::time::Duration;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, Claim, History};
use crate::event::{How, span};
use crate::owners::Owned;
use crate::ranges::shared;

/// The fault during which the server does not answer.
const FREEZE: &str = "StopServer";
/// The fault by which it loses its data and its connections.
const RESTART: &str = "RestartEmpty";
/// The fault by which it loses only its data.
const FLUSH: &str = "FlushAll";
/// How soon a holder notices a restart.
const NOTICED: Duration = Duration::from_secs(3);
/// A signal takes a moment to arrive.
const MOMENT: u64 = 5_000_000;
/// In less time a stopped server can't be distinguished from one that is about to answer.
const TOO_SHORT: u64 = 20_000_000;
/// A task that was not polled for this long at the end of its timeout reports only the timeout, because it may not have read a reply.
const UNPOLLED: u64 = 50_000_000;
/// How long the effects of a fault last.
const AFTER: u64 = 3_000_000_000;

/// As far as it can be decided: a grant has time left; a hold is reported as lost if and only if it ended before its release; a
/// server that could not answer never looks like a busy lock, nor a healthy one like an outage.
#[must_use]
pub fn errors_are_true(history: &History, bounds: &Bounds) -> Vec<Violation> {
    if !bounds.tells {
        return Vec::new();
    }
    let mut found = Vec::new();
    for attempt in &history.attempts {
        if let Some(claim) = &attempt.claim {
            found.extend(claim_is_true(history, bounds, attempt, claim));
        }
    }
    found.extend(outages_are_no_busy_locks(history, bounds));
    found.extend(outages_are_real(history, bounds));
    found.extend(busy_locks_are_taken(history, bounds));
    found
}

/// A holder learns soon after a restart that the server has lost its lease, and the release of a lease that the server has lost is
/// no success.
#[must_use]
pub fn losses_are_told(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if !bounds.tells {
        return found;
    }
    for restart in history.faults.iter().filter(|fault| [RESTART, FLUSH].contains(&&*fault.kind)) {
        let (from, by) = (restart.range.0, restart.range.1 + bounds.allow(NOTICED));
        if history.faults_in((from.saturating_sub(AFTER), by)).any(|fault| fault.range != restart.range) {
            continue;
        }
        for attempt in &history.attempts {
            let Some(claim) = attempt.claim.as_ref().filter(|claim| claim.from < from) else { continue };
            let name = who(attempt);
            // If a server only loses its data, its clients can't notice.
            let by = by + history.late(attempt, (from, claim.end()));
            if claim.end() > by && restart.kind == RESTART {
                let text = format!("{name} does not notice that the server has forgotten its hold of {}", attempt.key);
                found.push(Violation::of(attempt, (attempt.invoked, claim.end()), text));
            }
            // If other tasks of its process wait, the release may have been a hand-over.
            let is_alone = |other: &Attempt| {
                let over = other.claim.as_ref().map_or(other.returned(), Claim::over).unwrap_or(u64::MAX);
                std::ptr::eq(other, attempt)
                    || (&other.process, &other.key) != (&attempt.process, &attempt.key)
                    || shared((other.invoked, over), claim.range()).is_none()
            };
            if let Some((at, How::Done)) = claim.answer
                && !claim.dropped
                // A lingering lease is not released at once.
                && bounds.linger.is_zero()
                // A release that the restart interrupted is repeated, and may have been executed before the restart.
                && claim.released.is_some_and(|called| called > restart.range.1 + MOMENT)
                && history.attempts.iter().all(is_alone)
            {
                let text = format!("{name} is told that it gave {} back, which the server had forgotten", attempt.key);
                found.push(Violation::of(attempt, (attempt.invoked, at), text));
            }
        }
    }
    found
}

fn claim_is_true(history: &History, bounds: &Bounds, attempt: &Attempt, claim: &Claim) -> Option<Violation> {
    let broken = |until, text| Some(Violation::of(attempt, (attempt.invoked, until), text));
    let name = who(attempt);
    // A pause between the grant and the first look may use up any lease.
    let paused = history.stalled(&attempt.process, (attempt.invoked, claim.from + MOMENT)) > 0;
    if claim.until <= claim.from && !paused && attempt.wanted.expire >= 100 {
        return broken(claim.from, format!("{name} was granted {} with no time left", attempt.key));
    }
    let early = |at: u64| at < claim.until && !bounds.forgetful;
    if let Some(at) = claim.lapsed.filter(|at| early(*at)) {
        return broken(at, format!("{name} lost {} {} before its deadline", attempt.key, ms(claim.until - at)));
    }
    let (returned, how) = claim.answer?;
    let called = claim.released?;
    if how == How::Lost && early(returned) {
        let left = ms(claim.until - returned);
        return broken(returned, format!("{name} is told that it lost {}, {left} before its deadline", attempt.key));
    }
    let overdue = called > claim.bound || claim.lapsed.is_some();
    if how == How::Done && overdue && !claim.dropped {
        return broken(returned, format!("{name} is not told that its hold of {} had ended", attempt.key));
    }
    None
}

/// A single try of one lock.
fn is_try(attempt: &Attempt) -> bool {
    attempt.wanted.timeout == 0 && !attempt.wanted.together
}

/// Checks acquires that were called and returned while the server was stopped, in a process that knew nothing of the lock. Requests for
/// several keys prove nothing, because only one key need be busy.
fn outages_are_no_busy_locks(history: &History, bounds: &Bounds) -> Vec<Violation> {
    // A reply may take two round trips, but must arrive within the command timeout.
    let too_short = TOO_SHORT.max(span((bounds.round_trip * 2).min(bounds.answer)));
    let mut used: HashMap<(&str, &str), Vec<&Attempt>> = HashMap::new();
    for attempt in &history.attempts {
        used.entry((&attempt.process, &attempt.key)).or_default().push(attempt);
    }
    let mut found = Vec::new();
    for stop in history.faults.iter().filter(|fault| fault.kind == FREEZE) {
        let from = stop.range.0 + MOMENT;
        for attempt in history.attempts.iter().filter(|attempt| attempt.how() == Some(How::Busy)) {
            let Some(returned) = attempt.returned() else { continue };
            if attempt.wanted.together
                || attempt.invoked < from
                || returned > stop.range.1
                || returned - attempt.invoked < too_short
                || history.late(attempt, (attempt.gives_up(), returned)) > UNPOLLED
            {
                continue;
            }
            // Other tasks of its process may hold it, or may have learned before that it is busy. A single try is refused while a
            // sibling asks.
            let knows = used[&(attempt.process.as_str(), attempt.key.as_str())].iter().any(|other| {
                let over = other.claim.as_ref().map_or(other.returned(), Claim::over).unwrap_or(u64::MAX);
                let is_beside = is_try(attempt) && !std::ptr::eq(*other, attempt) && other.invoked <= attempt.invoked;
                (other.invoked < from || is_beside)
                    && shared((other.invoked, over.saturating_add(AFTER)), (from, returned)).is_some()
            });
            if !knows {
                let text = format!("{} is told that {} is busy while the server is stopped", who(attempt), attempt.key);
                found.push(Violation::of(attempt, (stop.range.0, returned), text));
            }
        }
    }
    found
}

/// A single try may report a busy lock only if somebody else had the lock at some time during the try. Tries of several keys prove
/// nothing, because only one key need be busy.
fn busy_locks_are_taken(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let owners = history.owners();
    // Without the server's record this can't be decided.
    if owners.is_empty() {
        return Vec::new();
    }
    let attempts = history.by_key();
    let mut found = Vec::new();
    for attempt in history.attempts.iter().filter(|attempt| is_try(attempt)) {
        let (Some(returned), Some(How::Busy)) = (attempt.returned(), attempt.how()) else { continue };
        let range = (attempt.invoked.saturating_sub(span(bounds.noise)), returned);
        // A lease of its own process that is younger than the try may be the lease that the try itself was granted.
        // Shared leases are one lease in the record, which does not name the owners.
        let is_others = |lease: &Owned| {
            lease.is_shared()
                || lease.process().is_some_and(|process| process != attempt.process)
                || lease.from.0 < attempt.invoked
        };
        let leases = owners.get(attempt.key.as_str()).map(Vec::as_slice).unwrap_or_default();
        let is_taken =
            leases.iter().any(|lease| is_others(lease) && shared((lease.from.0, lease.to.1), range).is_some());
        let is_rival = |other: &Attempt| {
            let over = other.claim.as_ref().map_or(other.returned(), Claim::over).unwrap_or(u64::MAX);
            !std::ptr::eq(other, attempt)
                && (bounds.splits || other.process == attempt.process)
                && shared((other.invoked, latest_execution(history, over).saturating_add(AFTER)), range).is_some()
        };
        if !is_taken && !attempts.get(attempt.key.as_str()).is_some_and(|of| of.iter().any(|other| is_rival(other))) {
            let text = format!("{} is told that {} is busy, and nobody has it", who(attempt), attempt.key);
            found.push(Violation::of(attempt, (attempt.invoked, returned), text));
        }
    }
    found
}

/// The latest time at which a command sent at `sent` is executed: a stopped server executes it when it continues. By then the process
/// may no longer withdraw its ask, so the ask may be granted for a claim (promise 5).
fn latest_execution(history: &History, sent: u64) -> u64 {
    let stops = history.faults.iter().filter(|fault| fault.kind == FREEZE);
    stops.filter(|stop| stop.range.0 <= sent && sent < stop.range.1).map(|stop| stop.range.1).max().unwrap_or(sent)
}

fn outages_are_real(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    // A process starts with a connection, and the first lock in a cluster makes another one. A connection that a fault cut is
    // made again when the process first needs it, which may be long after.
    let mut begun: HashMap<(&str, u64), u64> = HashMap::new();
    let last_fault = |attempt: &Attempt| {
        let ends = history.faults.iter().map(|fault| fault.range.1);
        ends.filter(|end| *end <= attempt.invoked).max().unwrap_or_default()
    };
    if !bounds.round_trip.is_zero() {
        for attempt in &history.attempts {
            let first = begun.entry((&attempt.process, last_fault(attempt))).or_insert(attempt.invoked);
            *first = attempt.invoked.min(*first);
        }
    }
    for attempt in &history.attempts {
        let Some((returned, How::Unreachable, text)) = &attempt.outcome else { continue };
        let timeout = attempt.wanted.timeout();
        let time = if timeout.is_zero() { bounds.answer } else { timeout };
        // In less than two round trips a reply may not arrive, nor can a lease of that length be used. A fencing token of a quorum takes
        // two more (rule Q3).
        let trips = if attempt.wanted.fenced && bounds.splits { 4 } else { 2 };
        let is_short = time < bounds.round_trip * trips || attempt.wanted.expire() < bounds.round_trip * 3;
        let first = || begun.get(&(attempt.process.as_str(), last_fault(attempt))).copied();
        let is_connecting = || first().is_some_and(|first| attempt.invoked < first + span(bounds.round_trip * 5));
        if is_short || is_connecting() {
            continue;
        }
        // A fault that begins at the instant of the return may be the reason.
        if history.is_calm((attempt.invoked.saturating_sub(AFTER), *returned + 1)) {
            let text = format!("{} can't reach a server that is well: {text}", who(attempt));
            found.push(Violation::of(attempt, (attempt.invoked, *returned), text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::What;
    use crate::sample::{BOUNDS, Sample};

    #[test]
    fn a_grant_without_time_is_found() {
        assert_eq!(Sample::default().asks(1, "a").granted(5, "a", 0, None).finds(errors_are_true), 1);
    }

    #[test]
    fn a_silent_loss_is_found() {
        let late = |how| {
            let sample = Sample::default().asks(9, "a").granted(10, "a", 290, None);
            sample.released(400, "a", how).finds(errors_are_true)
        };
        assert_eq!(late(How::Done), 1);
        assert_eq!(late(How::Lost), 0);
    }

    #[test]
    fn an_invented_loss_is_found() {
        let sample = Sample::default().asks(9, "a").granted(10, "a", 290, None);
        assert_eq!(sample.released(100, "a", How::Lost).finds(errors_are_true), 1);
    }

    #[test]
    fn a_free_lock_that_is_reported_as_busy_is_found() {
        let wanted = crate::Wanted { timeout: 0, expire: 300, ..crate::Wanted::default() };
        let tries = |sample: Sample| {
            let tried = sample.and(2000, "a", What::Acquire { attempt: 0, key: crate::sample::KEY.into(), wanted });
            let told = What::Refused { attempt: 0, how: How::Busy, text: String::new() };
            tried.and(2700, "a", told).finds(errors_are_true)
        };
        let record = || Sample::default().owned(100, "b", 300, false).gone(200);
        assert_eq!(tries(record()), 1, "nobody has it");
        assert_eq!(tries(record().owned(2100, "a", 4000, false).gone(2600)), 1, "only the try itself has it");
        assert_eq!(tries(record().owned(2100, "b", 4000, false).gone(2600)), 0);
        assert_eq!(tries(record().owned(1900, "a", 4000, false).gone(2600)), 0);
        assert_eq!(tries(Sample::default()), 0, "there is no record");
    }

    #[test]
    fn what_a_stopped_server_executes_late_is_a_reason_to_be_busy() {
        let wanted = crate::Wanted { timeout: 0, expire: 300, ..crate::Wanted::default() };
        let finds = |stopped: u64| {
            let stop = What::Fault { kind: FREEZE.into(), target: "server".into(), from: stopped * 1_000_000 };
            let given_up = Sample::default().asks(200, "a").refused(700, "a", How::Cancelled);
            let tried = given_up.and(8800, "a", What::Acquire { attempt: 9, key: crate::sample::KEY.into(), wanted });
            let executed = tried.and(9000, "harness", stop).owned(9000, "a", 9900, false);
            let told = What::Refused { attempt: 9, how: How::Busy, text: String::new() };
            executed.and(9300, "a", told).gone(9900).finds(errors_are_true)
        };
        assert_eq!(finds(100), 0, "it was asked for while the server was stopped");
        assert_eq!(finds(800), 1, "the ask before the stop is long over");
    }

    #[test]
    fn a_task_that_was_not_polled_when_its_time_was_up_says_only_that_it_is_over() {
        let wanted = crate::Wanted { timeout: 200, expire: 300, ..crate::Wanted::default() };
        let finds = |late: u64| {
            let stop = What::Fault { kind: FREEZE.into(), target: "server".into(), from: 100_000_000 };
            let asks = What::Acquire { attempt: 9, key: crate::sample::KEY.into(), wanted };
            let told = What::Refused { attempt: 9, how: How::Busy, text: String::new() };
            let asked = Sample::default().and(200, "a", asks).and(500, "a", What::Late { from: late * 1_000_000 });
            asked.and(500, "a", told).and(900, "harness", stop).finds(errors_are_true)
        };
        assert_eq!(finds(390), 0);
        assert_eq!(finds(460), 1, "it was polled in time, and had no reply");
    }

    #[test]
    fn a_loss_that_is_not_reported_is_found() {
        let told = |how, at, until| {
            let restart = What::Fault { kind: RESTART.into(), target: "server".into(), from: 100_000_000 };
            let sample = Sample::default().and(100, "harness", restart).asks(9, "a").granted(10, "a", until, None);
            sample.released(at, "a", how).finds(losses_are_told)
        };
        assert_eq!(told(How::Done, 200, 290), 1);
        assert_eq!(told(How::Lost, 200, 290), 0);
        assert_eq!(told(How::Done, 90, 290), 0);
        assert_eq!(told(How::Lost, 3300, 9000), 1);
    }

    #[test]
    fn busy_is_no_word_for_a_stopped_server() {
        let fault = What::Fault { kind: FREEZE.into(), target: "server".into(), from: 100_000_000 };
        let stopped = Sample::default().and(900, "harness", fault);
        assert_eq!(stopped.clone().asks(200, "a").refused(300, "a", How::Busy).finds(errors_are_true), 1);
        assert_eq!(stopped.clone().asks(200, "a").refused(300, "a", How::Unreachable).finds(errors_are_true), 0);
        assert_eq!(stopped.asks(50, "a").refused(300, "a", How::Busy).finds(errors_are_true), 0);
    }

    #[test]
    fn unreachable_is_no_word_for_a_well_server() {
        let refused = Sample::default().asks(9000, "a").refused(9100, "a", How::Unreachable);
        assert_eq!(refused.finds(errors_are_true), 1);
        let cut = |at: u64| What::Fault { kind: "CutAll".into(), target: "wire".into(), from: at * 1_000_000 };
        assert_eq!(refused.clone().and(9100, "harness", cut(9100)).finds(errors_are_true), 0);
        assert_eq!(refused.and(9101, "harness", cut(9101)).finds(errors_are_true), 1);
    }

    fn far(round_trip: u64) -> Bounds {
        Bounds {
            round_trip: Duration::from_millis(round_trip),
            answer: Duration::from_millis(500),
            lease: Duration::from_secs(3),
            ..BOUNDS
        }
    }

    #[test]
    fn an_answer_from_afar_may_take_two_round_trips_and_no_longer_than_any_command() {
        let fault = What::Fault { kind: FREEZE.into(), target: "server".into(), from: 100_000_000 };
        let stopped = Sample::default().and(2000, "harness", fault);
        for (round_trip, until, found) in [(200, 590, 0), (200, 610, 1), (400, 690, 0), (400, 710, 1)] {
            let busy = stopped.clone().asks(200, "a").refused(until, "a", How::Busy);
            assert_eq!(busy.finds_with(errors_are_true, &far(round_trip)), found, "{round_trip} ms, until {until} ms");
        }
    }

    #[test]
    fn a_fenced_try_on_a_quorum_may_take_two_more_round_trips() {
        let fails = |fenced, splits| {
            let wanted = crate::Wanted { timeout: 0, expire: 900, fenced, ..crate::Wanted::default() };
            let asks = What::Acquire { attempt: 9, key: crate::sample::KEY.into(), wanted };
            let told = What::Refused { attempt: 9, how: How::Unreachable, text: String::new() };
            let sample = Sample::default().held("a", 100, 200).and(9000, "a", asks).and(9500, "a", told);
            sample.finds_with(errors_are_true, &Bounds { splits, ..far(195) })
        };
        assert_eq!(
            [(true, true), (false, true), (true, false)].map(|(fenced, splits)| fails(fenced, splits)),
            [0, 1, 1]
        );
    }

    #[test]
    fn a_cut_connection_is_made_again_when_it_is_needed_and_excuses_no_later_call() {
        let cut = What::Fault { kind: "Cut".into(), target: "wire".into(), from: 3_000_000_000 };
        let fails = |at| {
            let used = Sample::default().held("a", 100, 200).and(3001, "harness", cut.clone());
            let refused = |sample: Sample, at| sample.asks(at, "a").refused(at + 500, "a", How::Unreachable);
            refused(refused(used, 9000), at).finds_with(errors_are_true, &far(50))
        };
        assert_eq!((fails(9200), fails(9300)), (0, 1));
    }
}
