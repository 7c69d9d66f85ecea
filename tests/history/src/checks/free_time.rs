//! C5: no lock is free while somebody waits for it.

use std::time::Duration;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, Claim, History};
use crate::owners::End;
use crate::ranges::{Range, shared, without};

/// After this time a waiter that missed its wake-up asks again.
const POLL: Duration = Duration::from_secs(1);
/// How long after a fault connections may still be missing.
const AFTER: u64 = 2_000_000_000;
/// How long a hand-off between processes may take without faults.
const HAND_OFF: Duration = Duration::from_millis(50);
/// How long there must have been no fault.
const CALM: u64 = 3_000_000_000;

/// In the server's record, without faults, a lock is free for at most a second while a task waits for it. A task that waits for several
/// keys may wait for another one of them.
///
/// For a shared lock the record only says that somebody has it. If a permit stays free while others are in use, another check finds
/// it: the waiters starve after the faults.
#[must_use]
pub fn a_free_lock_is_taken(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    let attempts = history.by_key();
    for (key, leases) in history.owners() {
        let ends = leases.iter().filter(|lease| lease.end != End::Open).map(|lease| lease.to.1);
        let starts = leases.iter().skip(1).map(|lease| lease.from.0).chain([history.last()]);
        for free in ends.zip(starts).filter(|free| free.1 > free.0 && free.1 - free.0 > bounds.allow(POLL)) {
            for attempt in waiters(attempts.get(key)) {
                let waiting = (attempt.invoked, attempt.returned().unwrap_or(history.last()));
                let trouble = || troubles(history, attempt).chain(holds(bounds, attempt, &attempts[key]));
                let calm = shared(free, waiting).map(|both| without(both, trouble()));
                for stretch in calm.into_iter().flatten() {
                    let idle = stretch.1 - stretch.0;
                    let excused = history.stalled(&attempt.process, stretch) + history.late(attempt, stretch);
                    if idle > bounds.allow(POLL) + excused {
                        let text = format!("{key} is free for {} while {} waits", ms(idle), who(attempt));
                        found.push(Violation::of(attempt, stretch, text));
                    }
                }
            }
        }
    }
    found
}

/// Without faults, a released lock goes to a waiter by a message, so that no waiter has to find it by asking.
#[must_use]
pub fn a_released_lock_passes_on(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if !bounds.queues {
        return found;
    }
    let attempts = history.by_key();
    for (key, leases) in history.owners() {
        for pair in leases.windows(2).filter(|pair| pair[0].end == End::Deleted) {
            let free = (pair[0].to.1, pair[1].from.0);
            for attempt in waiters(attempts.get(key)) {
                let killed = history.killed.get(&attempt.process).copied();
                let waiting = (attempt.invoked, attempt.returned().or(killed).unwrap_or(history.last()));
                let idle = shared(free, waiting).map(|both| without(both, holds(bounds, attempt, &attempts[key])));
                for idle in idle.into_iter().flatten() {
                    let is_calm = history.is_calm((idle.0.saturating_sub(CALM), idle.1));
                    let is_looking = attempt.invoked > free.0 && looks_for_the_master(history, attempt, &attempts[key]);
                    if idle.1 - idle.0 > bounds.allow(HAND_OFF) && is_calm && !is_looking {
                        let time = ms(idle.1 - idle.0);
                        let text = format!("{key} is not passed on for {time} while {} waits", who(attempt));
                        found.push(Violation::of(attempt, idle, text));
                    }
                }
            }
        }
    }
    found
}

/// Whether slots have moved since the process last had this lock: then its first ask must find the lock's master, and connect to it.
fn looks_for_the_master(history: &History, attempt: &Attempt, all: &[&Attempt]) -> bool {
    let own = all.iter().filter(|other| other.process == attempt.process && other.invoked < attempt.invoked);
    let last = own.filter_map(|other| other.claim.as_ref()).map(|claim| claim.range().0).max().unwrap_or_default();
    let mut moves = history.faults.iter().filter(|fault| fault.kind == "MoveSlots").map(|fault| fault.range.0);
    moves.any(|at| (last..attempt.invoked).contains(&at))
}

/// The attempts that wait for only this lock.
fn waiters<'a>(attempts: Option<&'a Vec<&'a Attempt>>) -> impl Iterator<Item = &'a Attempt> {
    attempts.into_iter().flatten().copied().filter(|attempt| !attempt.wanted.together)
}

/// The periods in which `attempt` had a reason not to get a free lock.
fn troubles<'a>(history: &'a History, attempt: &'a Attempt) -> impl Iterator<Item = Range> + 'a {
    let theirs = history.faults.iter().map(|fault| (fault.range.0, fault.range.1 + AFTER));
    theirs.chain(history.killed.get(&attempt.process).map(|at| (*at, u64::MAX)))
}

/// The periods in which the process of `attempt` believed to have the lock, although the server had lost it. Until it learns of
/// the loss, its tasks wait for each other.
fn holds<'a>(bounds: &Bounds, attempt: &'a Attempt, all: &'a [&Attempt]) -> impl Iterator<Item = Range> + 'a {
    let own = all.iter().filter(|other| other.process == attempt.process);
    let held = own.filter_map(|other| other.claim.as_ref()).map(Claim::range);
    held.take(if bounds.forgetful { usize::MAX } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::HARNESS;
    use crate::event::{How, Share, What};
    use crate::sample::{BOUNDS, Sample};

    fn free_for(milliseconds: u64) -> Sample {
        let end = 200 + milliseconds;
        let sample = Sample::default().owned(99, "a", 400, false).held("a", 100, 199).gone(200);
        sample.asks(150, "b").granted(end, "b", end + 200, None).released(end + 50, "b", How::Done).owned(
            end - 1,
            "b",
            end + 300,
            false,
        )
    }

    #[test]
    fn a_lock_that_is_free_under_a_waiter_is_found() {
        assert_eq!(free_for(1500).finds(a_free_lock_is_taken), 1);
        assert_eq!(free_for(900).finds(a_free_lock_is_taken), 0);
    }

    #[test]
    fn a_lock_that_a_waiter_finds_only_by_asking_is_found() {
        assert_eq!(free_for(400).finds(a_released_lock_passes_on), 1);
        assert_eq!(free_for(100).finds(a_released_lock_passes_on), 0);
    }

    #[test]
    fn the_first_ask_after_slots_have_moved_has_to_find_the_master() {
        let late = |moved: Option<u64>, begins: u64| {
            let sample = Sample::default().owned(99, "a", 20_000, false).held("a", 100, 9000).gone(9001);
            let moves =
                |at| What::Fault { kind: "MoveSlots".to_owned(), target: "wire".to_owned(), from: at * 1_000_000 };
            let sample = moved.into_iter().fold(sample, |sample, at| sample.and(at, HARNESS, moves(at)));
            let sample = sample.asks(begins, "b").granted(9901, "b", 9999, None).released(9950, "b", How::Done);
            sample.owned(9900, "b", 9999, false).finds(a_released_lock_passes_on)
        };
        assert_eq!((late(None, 9100), late(Some(4000), 9100)), (1, 0));
        // A task that waited before the release gets a message.
        assert_eq!(late(Some(4000), 8000), 1);
    }

    #[test]
    fn a_task_waits_for_its_sibling_that_holds_what_the_server_forgot() {
        let holds = Sample::default().owned(9, "b", 1400, false).asks(5, "b").granted(10, "b", 1390, None);
        let sample = holds.released(1390, "b", How::Lost).gone(200).asks(150, "b");
        let sample = sample.granted(1400, "b", 1600, None).released(1450, "b", How::Done).owned(1399, "b", 1700, false);
        for check in [a_free_lock_is_taken, a_released_lock_passes_on] {
            assert_eq!(sample.clone().finds(check), 1);
            assert_eq!(sample.clone().finds_with(check, &Bounds { forgetful: true, ..BOUNDS }), 0);
        }
    }

    #[test]
    fn a_lock_that_is_free_under_a_reader_is_found() {
        let reads = |share| {
            let sample = Sample::default().owned(99, "a", 400, false).held("a", 100, 199).gone(200).wants(share);
            let asks = sample.asks(150, "b").granted(1700, "b", 1900, None).released(1750, "b", How::Done);
            asks.shared(1699, 2000).gone(1751).finds(a_free_lock_is_taken)
        };
        assert_eq!((reads(Share::Read), reads(Share::Permit(2))), (1, 1));
    }

    #[test]
    fn a_waiter_for_another_key_of_its_set_does_not_wait_for_a_free_one() {
        let sample = Sample::default().owned(99, "a", 400, false).held("a", 100, 199).gone(200).together();
        let asks = sample.asks(150, "b").granted(1700, "b", 1900, None).released(1750, "b", How::Done);
        let granted = asks.owned(1699, "b", 2000, false);
        assert_eq!(granted.clone().finds(a_free_lock_is_taken), 0);
        assert_eq!(granted.finds(a_released_lock_passes_on), 0);
    }

    #[test]
    fn a_fault_is_an_excuse() {
        let fault = What::Fault { kind: "freeze".into(), target: "server".into(), from: 250_000_000 };
        assert_eq!(free_for(1500).and(400, "harness", fault).finds(a_free_lock_is_taken), 0);
    }
}
