//! C6: no lock stays in the server for a process that neither holds it nor waits for it.

use std::time::Duration;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, History};
use crate::event::{How, LOSE_GRANT, LOSE_NEAR, LOSE_PUSH, span};
use crate::owners::Owned;
use crate::ranges::{Range, covered, shared, without};

/// How long the leftovers of a failed acquire may last.
const FAILED: Duration = Duration::from_secs(3);
/// How long a release may take without faults.
const RELEASED: Duration = Duration::from_secs(1);
/// How long a task that is woken and not polled may delay others, each time.
const LATE: Duration = Duration::from_secs(1);
/// How long after a fault an acquire may still suffer from it.
const AFTER: u64 = 1_000_000_000;

/// How long the withdrawal of an ask is repeated (rule 1).
const WITHDRAWN: Duration = Duration::from_secs(5);
/// The pause between asks (rule 5).
const PAUSED: Duration = Duration::from_secs(9);

/// How long the entry of a dead process stays in the queue when nobody asks.
const PLACE_KEPT: Duration = Duration::from_secs(15);

/// How long a cut connection has effects.
const CUT: u64 = 300_000_000;

/// Another client's value at a helper key is no reason to keep a lock.
const FOREIGN: &str = "ForeignValue";

/// A key whose token belongs to no live task must go away: at once after a release, within 3 s after a failed acquire, and
/// after its lease if its process was killed or the release could not arrive.
#[must_use]
pub fn no_lock_is_left_behind(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    let attempts = history.by_key();
    for (key, leases) in history.owners() {
        let users = attempts.get(key).map(Vec::as_slice).unwrap_or_default();
        for lease in leases {
            let own: Vec<_> = users.iter().filter(|attempt| lease.is_of(attempt)).copied().collect();
            let whole = (lease.from.1, lease.to.0.min(history.last()));
            for idle in without(whole, own.iter().map(|attempt| (attempt.invoked, over(history, attempt)))) {
                let bound = bounds.allow(bound(history, bounds, &lease, &own, idle));
                let time = idle.1 - idle.0;
                let process = lease.process().unwrap_or("nobody known");
                // On a busy machine the server's record is read late.
                if time > bound && time > bound + history.stalled(process, idle) {
                    let text = format!("{key} is owned by {process} for {}, which has no use for it", ms(time));
                    found.push(Violation { check: "", text, key: Some(key.to_owned()), range: idle });
                }
            }
        }
    }
    found
}

/// Without current faults, a live process uses a lock that it owns, or releases it, whatever went wrong before. It has `time_to_know` to
/// learn that it owns the lock.
#[must_use]
pub fn unused_locks_are_released(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if !bounds.tells {
        return found;
    }
    let attempts = history.by_key();
    for (key, leases) in history.owners() {
        let users = attempts.get(key).map(Vec::as_slice).unwrap_or_default();
        for lease in leases {
            let Some(process) = lease.process().filter(|process| !history.killed.contains_key(*process)) else {
                continue;
            };
            let own = users.iter().filter(|attempt| attempt.process == process);
            let used = own.filter_map(|attempt| Some((used_from(attempt)?, over(history, attempt))));
            let known = time_to_know(history, users, &lease);
            for idle in without((lease.from.1, lease.to.0.min(history.last())), used.chain(troubles(history))) {
                let time = idle.1 - idle.0;
                let own = users.iter().filter(|user| user.process == process);
                let times = own.map(|user| times_late(history, user, idle)).max().unwrap_or_default();
                let bound = bounds.allow(known + bounds.linger + LATE * times);
                if time > bound && time > bound + history.stalled(process, idle) {
                    let text = format!("{key} is owned by {process} for {} without a reason", ms(time));
                    found.push(Violation { check: "", text, key: Some(key.to_owned()), range: idle });
                }
                for (waiter, both) in waits(history, users, process, idle) {
                    // A message that was lost earlier, during the hold, would have announced this waiter, too.
                    let heard = time_to_hear(history, bounds, process, (waiter.invoked.min(idle.0), idle.1));
                    let bound = bounds.allow(known + LATE * times + heard);
                    let time = both.1 - both.0;
                    let excused = history.stalled(process, both) + history.stalled(&waiter.process, both);
                    if time > bound + excused + history.late(waiter, both) {
                        let text = format!("{process} keeps {key} for {} and does not use it", ms(time));
                        found.push(Violation::of(waiter, both, format!("{text}, while {} waits", who(waiter))));
                    }
                }
            }
        }
    }
    found
}

/// The periods in which connections may not have worked.
fn troubles(history: &History) -> impl Iterator<Item = Range> {
    let troubles = history.faults.iter().filter(|fault| fault.kind != FOREIGN);
    troubles.map(|fault| (fault.range.0, fault.range.1 + felt(&fault.kind)))
}

/// How long a process may take to learn of waiters for its lingering lease if messages are lost. The waiters repeat their asks within a
/// second, and each ask sends the message again.
fn time_to_hear(history: &History, bounds: &Bounds, process: &str, idle: Range) -> Duration {
    let lost = history.faults_in(idle).filter(|fault| fault.kind == LOSE_PUSH && fault.target == process);
    // The time of the first repetition is already included.
    let more = u32::try_from(lost.count()).unwrap_or(u32::MAX).saturating_sub(1);
    RELEASED.saturating_mul(more).min(bounds.linger)
}

/// How long a live process may take to learn that it owns `lease`. If the message of the grant is lost, the next ask finds the grant
/// within a second. Two kinds of grants are not found so soon. They end with their claims, like the grant of a crashed waiter (promise
/// 4).
///
/// - The ask was given up in an outage that lasted longer than its withdrawal was repeated. So the ask was still in the queue, and
///   the process no longer asks with its token (promise 5). A broken connection loses the message, too.
/// - The ask pauses, because the message that it is now one of the first was lost, too. Or the waiters in front of it were dead, and
///   it got the lock without having been one of the first.
fn time_to_know(history: &History, users: &[&Attempt], lease: &Owned) -> Duration {
    let granted = lease.from.0;
    let lost = |kind: &'static str, range: Range| {
        let faults = history.faults_in(range);
        faults.filter(move |fault| fault.kind == kind && lease.process() == Some(&*fault.target))
    };
    let is_cut = || history.faults_in((granted, lease.from.1 + 1)).any(|fault| felt(&fault.kind) == CUT);
    let is_lost = lost(LOSE_GRANT, (granted, lease.from.1 + 1)).next().is_some();
    if !is_lost && !is_cut() {
        return RELEASED;
    }
    let own = || users.iter().filter(|user| lease.is_of(user));
    let is_given_up = own().filter(|user| user.claim.is_none()).filter_map(|user| user.returned()).any(|given_up| {
        let withdrawn = (given_up, given_up + span(WITHDRAWN));
        withdrawn.1 <= granted && without(withdrawn, troubles(history)).is_empty()
    });
    // Several tasks, one after another, wait with the same ask.
    let waits = || own().map(|user| (user.invoked, user.returned().unwrap_or(history.last())));
    let pauses = lost(LOSE_NEAR, (granted.saturating_sub(span(PAUSED)), granted)).any(|near| {
        let since = (near.range.0, granted);
        covered(since, waits()) == since.1 - since.0
    });
    let stays = granted.saturating_sub(span(PLACE_KEPT))..granted;
    let first = waits().filter(|(from, _)| *from <= granted).map(|(from, _)| from).max().unwrap_or(granted);
    let is_behind_dead = users.iter().filter(|user| user.claim.is_none() && user.invoked < first).any(|user| {
        let killed = history.killed.get(&user.process).filter(|at| stays.contains(*at));
        killed.is_some_and(|killed| user.returned().is_none_or(|returned| returned >= *killed))
    });
    // After a reconnect a process asks at once, also during a pause.
    let is_untold = is_lost && (pauses || is_behind_dead);
    if is_given_up || is_untold { FAILED } else { RELEASED }
}

/// A task that waits for a lock that its own process owns does not use it. But a request for several keys keeps those that it already
/// has while it waits for the others.
fn used_from(attempt: &Attempt) -> Option<u64> {
    if attempt.wanted.together { Some(attempt.invoked) } else { Some(attempt.claim.as_ref()?.from) }
}

/// The periods in which tasks of other processes wait for a lock that this process does not use.
fn waits<'a>(
    history: &'a History,
    users: &'a [&'a Attempt],
    process: &'a str,
    idle: Range,
) -> impl Iterator<Item = (&'a Attempt, Range)> {
    let others = users.iter().filter(move |user| user.process != process && user.wanted.timeout > 0);
    others.filter_map(move |user| {
        let killed = history.killed.get(&user.process).copied();
        let until = user.returned().into_iter().chain(killed).min().unwrap_or(history.last());
        Some((*user, shared(idle, (user.invoked, until))?))
    })
}

/// How often a task was late for long in this time, and at least once if it was late at all. Each step on its way to the lock may be
/// late, and a quorum needs several.
fn times_late(history: &History, user: &Attempt, idle: Range) -> u32 {
    let times = history.times_late(user, idle, span(LATE) / 2);
    times.max(u32::from(history.late(user, idle) > 0))
}

/// How long a fault has effects.
fn felt(kind: &str) -> u64 {
    match kind {
        // A message is lost on a connection that works.
        LOSE_GRANT | LOSE_NEAR | LOSE_PUSH | "LosePushes" => 0,
        // A connection is cut, and the client knows it.
        "Cut" | "CutAll" => CUT,
        _ => 1_500_000_000,
    }
}

/// When a task was done with the lock.
fn over(history: &History, attempt: &Attempt) -> u64 {
    let killed = history.killed.get(&attempt.process).copied();
    let done = match (&attempt.outcome, &attempt.claim) {
        (_, Some(claim)) => claim.over(),
        (Some((at, ..)), None) => Some(*at),
        (None, None) => None,
    };
    done.into_iter().chain(killed).min().unwrap_or(history.last())
}

fn bound(history: &History, bounds: &Bounds, lease: &Owned, own: &[&Attempt], idle: (u64, u64)) -> Duration {
    let killed = lease.process().is_none_or(|process| history.killed.contains_key(process));
    let trouble = (idle.0.saturating_sub(AFTER), idle.1);
    let used = own.iter().filter_map(|attempt| attempt.claim.as_ref());
    let was_held =
        used.into_iter().any(|claim| claim.from < idle.1 && claim.over().is_none_or(|at| at >= lease.from.0));
    let lost = own.iter().filter_map(|attempt| attempt.claim.as_ref()?.answer).any(|(_, how)| how != How::Done);
    match (killed, was_held) {
        // No process is left to extend the first claim of a grant.
        (true, false) if bounds.tells => FAILED.min(bounds.crash()),
        (true, _) => bounds.crash(),
        (false, true) if lost || history.faults_in(trouble).next().is_some() => bounds.crash(),
        (false, true) => RELEASED + bounds.linger,
        (false, false) => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Share, What};
    use crate::sample::{BOUNDS, Sample};

    #[test]
    fn a_lock_that_a_failed_acquire_leaves_is_found() {
        let left = |until| {
            let sample =
                Sample::default().asks(10, "a").refused(20, "a", How::Unreachable).owned(30, "a", until, false);
            sample.and(9000, "a", What::Ended).finds(no_lock_is_left_behind)
        };
        assert_eq!(left(2500), 0);
        assert_eq!(left(4000), 1);
    }

    #[test]
    fn a_lock_that_outlives_its_release_is_found() {
        let sample = Sample::default().owned(9, "a", 9000, false).held("a", 10, 20);
        assert_eq!(sample.clone().gone(500).finds(no_lock_is_left_behind), 0);
        assert_eq!(sample.gone(1500).finds(no_lock_is_left_behind), 1);
    }

    #[test]
    fn a_lock_that_is_left_when_all_is_well_again_is_found() {
        let fault = What::Fault { kind: "Part".into(), target: "wire".into(), from: 15_000_000 };
        let sample = Sample::default().owned(9, "a", 9000, false).held("a", 10, 20).and(1000, "harness", fault);
        assert_eq!(sample.clone().gone(3500).finds(unused_locks_are_released), 0);
        assert_eq!(sample.gone(3700).finds(unused_locks_are_released), 1);
    }

    fn lost(kind: &str, at: u64) -> What {
        What::Fault { kind: kind.into(), target: "a".into(), from: at * 1_000_000 }
    }

    #[test]
    fn a_place_in_the_queue_that_an_outage_left_is_granted_for_a_claim_when_the_message_is_lost() {
        let finds = |outage: u64, kind, ends| {
            let stopped = What::Fault { kind: "StopServer".into(), target: "server".into(), from: 100_000_000 };
            let asked = Sample::default().asks(10, "a").refused(200, "a", How::Unreachable);
            let asked = asked.and(outage, "harness", stopped).and(9000, "harness", lost(kind, 9000));
            asked.owned(9000, "a", 20_000, true).gone(ends).finds(unused_locks_are_released)
        };
        assert_eq!(finds(6000, LOSE_GRANT, 11_900), 0);
        assert_eq!(finds(6000, LOSE_GRANT, 12_200), 1, "a claim is shorter");
        assert_eq!(finds(2000, LOSE_GRANT, 11_900), 1, "it was withdrawn after the outage");
        assert_eq!(finds(6000, "Cut", 12_200), 0);
        assert_eq!(finds(6000, "Cut", 12_600), 1, "a claim is shorter");
        assert_eq!(finds(6000, LOSE_PUSH, 11_900), 1, "the process got the message of the grant");
    }

    #[test]
    fn a_waiter_that_misses_both_messages_is_like_a_crashed_one() {
        let finds = |first: &str, near: u64, ends| {
            let asked = Sample::default().asks(10, "a").and(near, "harness", lost(first, near));
            let asked = asked.and(900, "harness", lost(LOSE_GRANT, 900)).owned(900, "a", 20_000, true);
            asked.gone(ends).refused(ends + 10, "a", How::Busy).finds(unused_locks_are_released)
        };
        assert_eq!(finds(LOSE_NEAR, 500, 3800), 0);
        assert_eq!(finds(LOSE_NEAR, 500, 4100), 1, "a claim is shorter");
        assert_eq!(finds(LOSE_PUSH, 500, 2100), 1, "one message costs a second");
        assert_eq!(finds(LOSE_NEAR, 5, 2100), 1, "that was before it asked");
    }

    #[test]
    fn a_waiter_that_inherits_the_lock_of_a_dead_one_and_misses_the_message_is_like_a_crashed_one() {
        let of = |kind, came: u64, killed: Option<u64>, ends| {
            let asked = Sample::default().asks(10, "a").asks(came, "b");
            let asked = killed.map_or(asked.clone(), |at| asked.and(at, "b", What::Killed));
            let asked = asked.and(900, "harness", lost(kind, 900)).owned(900, "a", 20_000, true);
            asked.gone(ends).refused(ends + 10, "a", How::Busy).finds(unused_locks_are_released)
        };
        let finds = |killed, ends| of(LOSE_GRANT, 5, killed, ends);
        assert_eq!(finds(Some(500), 3800), 0);
        assert_eq!(finds(Some(500), 4100), 1, "a claim is shorter");
        assert_eq!(of("Cut", 5, Some(500), 3800), 1, "after a reconnect it asks at once");
        assert_eq!(of(LOSE_GRANT, 11, Some(500), 2100), 1, "the dead one was queued later");
        assert_eq!(finds(None, 2100), 2, "it was the first: one message costs a second, and `b` waits as well");
    }

    #[test]
    fn a_task_that_is_late_twice_keeps_a_lock_for_a_second_more_each_time() {
        let sample = Sample::default().asks(5, "a").owned(9, "a", 9000, false);
        let late = |sample: Sample, from: u64, to| sample.and(to, "a", What::Late { from: from * 1_000_000 });
        let finds = |sample: Sample| sample.gone(2900).refused(2950, "a", How::Busy).finds(unused_locks_are_released);
        assert_eq!(finds(late(sample.clone(), 100, 1000)), 1);
        assert_eq!(finds(late(late(sample.clone(), 100, 1000), 1100, 1200)), 1);
        assert_eq!(finds(late(late(sample, 100, 1000), 1100, 2000)), 0);
    }

    #[test]
    fn a_lock_that_is_left_for_a_foreign_value_is_found() {
        let fault = What::Fault { kind: FOREIGN.into(), target: "server".into(), from: 5_000_000 };
        let sample = Sample::default().owned(9, "a", 9000, false).held("a", 10, 20).and(4000, "harness", fault);
        assert_eq!(sample.clone().gone(900).finds(unused_locks_are_released), 0);
        assert_eq!(sample.gone(3700).finds(unused_locks_are_released), 1);
    }

    #[test]
    fn a_lingering_lock_that_is_kept_from_a_waiter_is_found() {
        let bounds = Bounds { linger: Duration::from_secs(2), ..BOUNDS };
        let sample = Sample::default().owned(9, "a", 9000, false).held("a", 10, 20);
        let finds = |sample: &Sample| sample.clone().finds_with(unused_locks_are_released, &bounds);
        assert_eq!(finds(&sample.clone().gone(3000)), 0);
        assert_eq!(finds(&sample.clone().gone(3200)), 1);
        let waited = sample.asks(500, "b");
        assert_eq!(finds(&waited.clone().gone(1500)), 0);
        assert_eq!(finds(&waited.clone().gone(1700)), 1);
        let untold = waited.and(500, "harness", lost(LOSE_PUSH, 500));
        assert_eq!(finds(&untold.clone().gone(1700)), 1, "one message costs a second");
        let untold = untold.and(1400, "harness", lost(LOSE_PUSH, 1400));
        assert_eq!(finds(&untold.clone().gone(2500)), 0);
        assert_eq!(finds(&untold.gone(2700)), 1, "the third message came");
    }

    #[test]
    fn a_message_that_was_lost_while_the_lock_was_held_is_as_lost_as_any_other() {
        let bounds = Bounds { linger: Duration::from_secs(2), ..BOUNDS };
        let sample = Sample::default().owned(9, "a", 9000, false).held("a", 10, 520).asks(500, "b");
        let finds = |sample: &Sample| sample.clone().finds_with(unused_locks_are_released, &bounds);
        assert_eq!(finds(&sample.clone().gone(2400)), 1);
        let untold = sample.and(510, "harness", lost(LOSE_PUSH, 510)).and(1400, "harness", lost(LOSE_PUSH, 1400));
        assert_eq!(finds(&untold.clone().gone(2400)), 0);
        assert_eq!(finds(&untold.gone(2800)), 1, "the third message came");
    }

    #[test]
    fn a_set_of_keys_that_is_half_taken_and_kept_is_found() {
        let asks = Sample::default().together().asks(5, "a").owned(9, "a", 9000, false);
        let waits = asks.clone().gone(4000).refused(4010, "a", How::Busy);
        assert_eq!(waits.finds(unused_locks_are_released), 0, "the task waits for its other key");
        let kept = |until| {
            let sample = asks.clone().refused(20, "a", How::Busy).gone(until);
            (sample.clone().finds(no_lock_is_left_behind), sample.finds(unused_locks_are_released))
        };
        assert_eq!(kept(900), (0, 0));
        assert_eq!(kept(3500), (1, 1));
    }

    #[test]
    fn a_shared_lock_that_nobody_uses_is_found() {
        let shared = |until| {
            let read = Sample::default().shared(9, until).wants(Share::Read).held("a", 10, 20).held("b", 15, 40);
            read.and(9000, "a", What::Ended).finds(no_lock_is_left_behind)
        };
        assert_eq!((shared(1000), shared(2000)), (0, 1));
    }

    #[test]
    fn a_killed_holder_costs_its_lease_and_a_second() {
        let killed = |until| {
            let sample = Sample::default().owned(9, "a", until, false).asks(5, "a").granted(10, "a", 290, None);
            sample.and(100, "a", What::Killed).and(9000, "b", What::Ended).finds(no_lock_is_left_behind)
        };
        assert_eq!(killed(1300), 0);
        assert_eq!(killed(1600), 1);
    }
}
