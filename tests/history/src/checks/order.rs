//! Promise 6: a known waiter of another process is passed over for at most one streak.

use std::collections::HashMap;
use std::time::Duration;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, Claim, History};
use crate::event::{How, Share, span};

/// The longest streak of hand-overs inside one process, including the grant that starts it.
const STREAK: usize = 65;
/// The longest time of a streak.
const STREAK_TIME: Duration = Duration::from_millis(10);
/// How long the message about a waiter may be on its way.
const NOTICE: u64 = 100_000_000;
/// The round trips of the first ask in a cluster: three to find the master, four to connect to it, and two more, as for each ask
/// that has to wait.
const FIRST_ASK: u32 = 9;

/// Without faults, no process gets a lock for more than a streak while another process waits for it.
///
/// Readers that waited together start together, in any number: for them only the time counts, and they don't pass each other.
/// Permits are left out: a process may have some and wait for one more, and each permit goes through its own streak. A process
/// that reads may also have its writer in the queue. So on a lock with readers, an acquire that was called before the waiter's
/// passes nobody. A task that waits for several keys may not have asked for this one yet.
#[must_use]
pub fn waiters_are_not_passed_over(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if !bounds.queues {
        return found;
    }
    for attempts in history.by_key().values() {
        let grants = history.grants(attempts);
        if grants.iter().any(|(attempt, _)| matches!(attempt.wanted.share, Share::Permit(_))) {
            continue;
        }
        let has_readers = grants.iter().any(|(attempt, _)| attempt.wanted.share == Share::Read);
        for (waiter, claim) in grants.iter().filter(|(waiter, _)| !waiter.wanted.together) {
            let known = known_by(history, bounds, waiter, attempts).max(held_until(waiter, &grants, bounds));
            let first = grants.partition_point(|(_, other)| other.from <= known);
            let is_later = |by: &Attempt| !has_readers || by.invoked > waiter.invoked;
            let passed = grants[first..].iter().take_while(|(_, other)| other.from < claim.from);
            let is_beside = |by: &Attempt, other: &Claim| {
                let both_read = by.wanted.share == Share::Read && waiter.wanted.share == Share::Read;
                both_read && claim.from - other.from <= span(bounds.noise)
            };
            let passed: Vec<_> = passed.filter(|(by, other)| is_later(by) && !is_beside(by, other)).collect();
            let own = grants_between(&grants, waiter.invoked, claim.from).any(|(by, _)| by.process == waiter.process);
            if passed.len() < 2 || own || !is_undisturbed(history, &grants, (waiter.invoked, claim.from)) {
                continue;
            }
            let mut streaks: HashMap<&str, (usize, u64, u64)> = HashMap::new();
            for (by, theirs) in passed {
                let streak = streaks.entry(&by.process).or_insert((0, theirs.from, theirs.from));
                let is_counted = by.wanted.share != Share::Read;
                *streak = (streak.0 + usize::from(is_counted), streak.1, theirs.from);
            }
            for (process, (count, from, to)) in streaks {
                if count > STREAK || to - from > bounds.allow(STREAK_TIME) {
                    let time = ms(to - from);
                    let text =
                        format!("{process} got {} {count} times in {time} while {} waits", waiter.key, who(waiter));
                    found.push(Violation::of(waiter, (waiter.invoked, claim.from), text));
                }
            }
        }
    }
    found
}

/// The latest time at which the owner learns of the waiter.
fn known_by(history: &History, bounds: &Bounds, waiter: &Attempt, all: &[&Attempt]) -> u64 {
    // The reply to the plain claim, the ask, and the message to the owner.
    let known = waiter.invoked + NOTICE + span(bounds.round_trip * 2);
    // In a cluster the first ask for a lock may have to find the lock's master and connect to it. So may the first ask after a
    // fault that cut the connection. An ask that failed as unreachable did not get that far.
    let fault = history.faults.iter().map(|fault| fault.range.1).filter(|end| *end <= waiter.invoked).max();
    let own = all.iter().filter(|other| other.process == waiter.process && Some(other.invoked) >= fault);
    let is_unreached = |other: &Attempt| matches!(other.outcome, Some((_, How::Unreachable, _)));
    let first = own.filter(|other| !is_unreached(other)).map(|attempt| attempt.invoked).min().unwrap_or(waiter.invoked);
    known.max(first + NOTICE + span(bounds.round_trip * FIRST_ASK))
}

/// The latest time at which the owner learns of the waiter if a task of the waiter's own process had the lock: until the end of that
/// hold its process is not queued.
fn held_until(waiter: &Attempt, grants: &Grants<'_>, bounds: &Bounds) -> u64 {
    let own = grants.iter().filter(|(by, other)| by.process == waiter.process && other.from <= waiter.invoked);
    let ends = own.map(|(_, other)| other.answer.as_ref().map_or(other.until, |(at, _)| *at));
    let end = ends.max().filter(|end| *end > waiter.invoked);
    end.map_or(0, |end| end + NOTICE + span(bounds.round_trip * 2))
}

type Grants<'a> = [(&'a Attempt, &'a Claim)];

fn grants_between<'a, 'b>(
    grants: &'b Grants<'a>,
    from: u64,
    to: u64,
) -> impl Iterator<Item = &'b (&'a Attempt, &'a Claim)> {
    let start = grants.partition_point(|(_, claim)| claim.from <= from);
    grants[start..].iter().take_while(move |(_, claim)| claim.from < to)
}

/// Whether there was no fault, no pause, and no lease that expired.
fn is_undisturbed(history: &History, grants: &Grants<'_>, range: (u64, u64)) -> bool {
    let before = range.0.saturating_sub(3_000_000_000);
    let cut = |claim: &Claim| claim.lapsed.is_some() || claim.answer.is_none_or(|(_, how)| how != How::Done);
    let broken = history.faults_in((before, range.1)).next().is_some();
    !broken && history.is_calm(range) && !grants_between(grants, before, range.1).any(|(_, claim)| cut(claim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{NEVER, What};
    use crate::sample::{BOUNDS, Sample};

    fn passed_over(times: u64, pause: u64) -> usize {
        let mut sample = Sample::default();
        for round in 0..times {
            let from = 150 + round * pause;
            sample = sample.held("a", from, from + 1);
        }
        let end = 160 + times * pause;
        sample
            .asks(10, "b")
            .granted(end, "b", end + 200, None)
            .released(end + 1, "b", How::Done)
            .finds(waiters_are_not_passed_over)
    }

    #[test]
    fn readers_that_keep_a_writer_out_are_found() {
        let finds = |readers: u64, pause| {
            let sample = Sample::default().asks(10, "b").wants(Share::Read);
            let read = (0..readers).fold(sample, |sample, number| {
                let from = 150 + number * pause;
                sample.held("a", from, from + 200)
            });
            let end = 360 + readers * pause;
            let granted = read.and(end, "b", What::Granted { attempt: 1, until: NEVER, fence: None });
            let (attempt, how, text) = (1, How::Done, String::new());
            let released = granted.and(end + 1, "b", What::Release { attempt, dropped: false });
            released.and(end + 2, "b", What::Released { attempt, how, text }).finds(waiters_are_not_passed_over)
        };
        assert_eq!(finds(90, 1), 0, "one batch");
        assert_eq!(finds(10, 100), 1, "they start one after another");
    }

    #[test]
    fn readers_that_start_together_do_not_pass_each_other() {
        let finds = |beside: u64| {
            let asked = Sample::default().wants(Share::Read).asks(10, "b").wants(Share::Alone).asks(12, "a");
            let asked = asked.wants(Share::Read).asks(14, "a");
            let turns = [(2, "a", 150), (3, "a", 601), (1, "b", 602 + beside)];
            let played = turns.into_iter().fold(asked, |sample, (attempt, process, from)| {
                let granted = sample.and(from, process, What::Granted { attempt, until: NEVER, fence: None });
                let (how, text) = (How::Done, String::new());
                let released = granted.and(from + 1, process, What::Release { attempt, dropped: false });
                released.and(from + 1, process, What::Released { attempt, how, text })
            });
            played.finds(waiters_are_not_passed_over)
        };
        assert_eq!(finds(0), 0);
        assert_eq!(finds(300), 1);
    }

    #[test]
    fn a_writer_that_asked_before_the_waiter_passes_nobody() {
        let finds = |reader: u64, writer: u64| {
            let asked = Sample::default().wants(Share::Read).asks(reader, "a").wants(Share::Alone).asks(writer, "a");
            let asked = asked.wants(Share::Read).asks(10, "b");
            // The attempts' numbers, in the order of the grants.
            let turns = [(1, "a", 150, 900), (2, "a", 901, 902), (3, "b", 903, 904)];
            let played = turns.into_iter().fold(asked, |sample, (attempt, process, from, to)| {
                let granted = sample.and(from, process, What::Granted { attempt, until: NEVER, fence: None });
                let (how, text) = (How::Done, String::new());
                let released = granted.and(to, process, What::Release { attempt, dropped: false });
                released.and(to, process, What::Released { attempt, how, text })
            });
            played.finds(waiters_are_not_passed_over)
        };
        assert_eq!(finds(1, 2), 0);
        assert_eq!(finds(1, 20), 0, "the later writer is one hold");
    }

    #[test]
    fn a_first_ask_from_afar_takes_longer_than_the_next() {
        let finds = |before: &str| {
            let asks = Sample::default().held(before, 5, 6).asks(1110, "b");
            let granted = asks.granted(2500, "b", 2790, None).released(2501, "b", How::Done);
            let held = [1450, 1850, 2250].into_iter().fold(granted, |sample, from| sample.held("a", from, from + 1));
            held.finds_with(waiters_are_not_passed_over, &Bounds { round_trip: Duration::from_millis(100), ..BOUNDS })
        };
        assert_eq!(finds("c"), 0, "it has to connect");
        assert_eq!(finds("b"), 1, "it is connected");
    }

    #[test]
    fn an_ask_that_reached_no_server_is_not_the_first() {
        let finds = |how| {
            let asks = Sample::default().asks(5, "b").refused(6, "b", how).asks(1110, "b");
            let granted = asks.granted(2500, "b", 2790, None).released(2501, "b", How::Done);
            let held = [1450, 1850, 2250].into_iter().fold(granted, |sample, from| sample.held("a", from, from + 1));
            held.finds_with(waiters_are_not_passed_over, &Bounds { round_trip: Duration::from_millis(100), ..BOUNDS })
        };
        assert_eq!(finds(How::Unreachable), 0);
        assert_eq!(finds(How::Busy), 1);
    }

    #[test]
    fn a_process_waits_for_nobody_while_it_has_the_lock_itself() {
        let finds = |end: u64| {
            let asks = Sample::default().asks(1, "b").granted(2, "b", 900, None).asks(10, "b");
            let (attempt, how, text) = (1, How::Done, String::new());
            let ends = asks.and(end, "b", What::Release { attempt, dropped: false });
            let ended = ends.and(end + 1, "b", What::Released { attempt, how, text: text.clone() });
            let held = [350, 450, 550].into_iter().fold(ended, |sample, from| sample.held("a", from, from + 1));
            let granted = held.and(600, "b", What::Granted { attempt: 2, until: NEVER, fence: None });
            let released = granted.and(601, "b", What::Release { attempt: 2, dropped: false });
            released.and(602, "b", What::Released { attempt: 2, how, text }).finds(waiters_are_not_passed_over)
        };
        assert_eq!([20, 340].map(finds), [1, 0]);
    }

    #[test]
    fn a_streak_that_does_not_end_is_found() {
        assert_eq!(passed_over(5, 1), 0);
        assert_eq!(passed_over(70, 1), 1);
        assert_eq!(passed_over(20, 10), 1);
    }
}
