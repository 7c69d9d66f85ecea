//! C4: after the faults there is progress, and no acquire waits for longer than its timeout.

use std::collections::HashSet;
use std::time::Duration;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, HARNESS, History};
use crate::event::{How, span};
use crate::ranges::covered;

/// After this many leases that were over before their grant arrived, an acquire fails and says that its lease is too short.
const OUTLIVED: u32 = 3;

/// How long a waiter whose host crashed delays others: the server hands the lock off to it for a claim, then somebody has to ask.
const DEAD_WAITER: Duration = Duration::from_secs(3);
/// A queue without asks expires after this time.
const QUEUE_TTL: u64 = 15_000_000_000;

/// The number of processes that were killed while a task waited for the lock, so that the queue may still have their asks.
fn crashed_waiters(history: &History, attempts: &[&Attempt], healed: u64) -> u32 {
    let waited = |attempt: &&&Attempt| {
        let killed = history.killed.get(&attempt.process).filter(|at| **at + QUEUE_TTL > healed);
        killed.is_some_and(|at| attempt.invoked < *at) && attempt.outcome.is_none() && attempt.claim.is_none()
    };
    let processes: HashSet<_> = attempts.iter().filter(waited).map(|attempt| &attempt.process).collect();
    processes.len().try_into().unwrap_or(u32::MAX)
}

/// After the last fault, each requested lock is granted soon, an acquire with a timeout longer than the cost of a crash gets its
/// lock, and every process ends. A task that asks for several keys waits for one after another, so the time for one lock proves
/// nothing.
#[must_use]
pub fn all_goes_on_after_the_faults(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    let Some(healed) = history.healed else { return found };
    for attempts in history.by_key().values() {
        // A crashed holder, and one or more crashed waiters behind it.
        let longest = bounds.crash() + DEAD_WAITER * crashed_waiters(history, attempts, healed).max(1);
        let mut after = attempts.iter().filter(|attempt| attempt.invoked >= healed);
        let asked = after.clone().filter(|attempt| !attempt.wanted.together);
        let Some(first) = asked.clone().next() else { continue };
        let allowed = bounds.allow(longest) + history.stalled(HARNESS, (healed, history.last()));
        let granted = history.grants(attempts).into_iter().find(|(_, claim)| claim.from >= healed);
        // The holder may also be polled late.
        let late = |attempt: &&Attempt| history.late(attempt, (attempt.invoked.max(healed), history.last()));
        let allowed = allowed + attempts.iter().map(late).sum::<u64>();
        // A lock without requests needs no grant.
        let asked = asked.map(|attempt| (attempt.invoked, attempt.returned().unwrap_or(u64::MAX)));
        let until = granted.map_or(history.last(), |(_, claim)| claim.from);
        if covered((first.invoked, until), asked) > allowed {
            let text = format!("{} is not granted to anybody within {}", first.key, ms(allowed));
            found.push(Violation::of(first, (first.invoked, until), text));
        }
        let grants = history.grants(attempts);
        // Each earlier holder gets its grant, releases, and the next gets its grant, all over the distance.
        let passed_on = |waits: (u64, u64)| {
            let holds = grants.iter().filter(|(_, claim)| (waits.0..waits.1).contains(&claim.from)).count();
            span(bounds.round_trip * 3).saturating_mul(holds as u64)
        };
        let starved = |attempt: &&&Attempt| {
            let waits = (attempt.invoked, attempt.returned().unwrap_or(history.last()));
            // The lock is not to blame for a holder that is polled late.
            let late: u64 = attempts.iter().map(|other| history.late(other, waits)).sum();
            // A task that fails because its leases were over must have been late for each of them.
            let outlived = history.times_late(attempt, waits, span(attempt.wanted.expire() / 2)) >= OUTLIVED;
            span(attempt.wanted.timeout()) >= span(longest) + late + passed_on(waits)
                && !outlived
                && !attempt.wanted.together
                && !matches!(attempt.how(), None | Some(How::Done | How::Cancelled))
        };
        if let Some(attempt) = after.find(starved) {
            let text = format!("{} did not get {} within {:?}", who(attempt), attempt.key, attempt.wanted.timeout());
            let until = attempt.returned().unwrap_or(history.last());
            found.push(Violation::of(attempt, (attempt.invoked, until), text));
        }
    }
    let mut silent: Vec<_> = history.attempts.iter().map(|attempt| &attempt.process).collect();
    silent.sort_unstable();
    silent.dedup();
    silent.retain(|process| !history.killed.contains_key(*process) && !history.ended.contains_key(*process));
    found.extend(silent.into_iter().map(|process| Violation {
        check: "",
        text: format!("{process} did not come to its end"),
        key: None,
        range: (healed, history.last()),
    }));
    found
}

/// An acquire returns within its timeout and 100 ms, whatever the server does; a single try within the time for a reply.
#[must_use]
pub fn acquires_return_in_time(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    for attempt in &history.attempts {
        let returned = attempt.returned().unwrap_or_else(|| {
            // It is unknown why a killed process did nothing just before.
            let killed = history.killed.contains_key(&attempt.process);
            if killed { history.last_of(&attempt.process) } else { history.last() }
        });
        let timeout = attempt.wanted.timeout();
        let wanted = if timeout.is_zero() { bounds.answer } else { timeout };
        let allowed = bounds.allow_anywhere(wanted + Duration::from_millis(100));
        let took = returned.saturating_sub(attempt.invoked);
        let waits = (attempt.invoked, returned);
        // A task that is polled late returns late, but then it must not be granted the lock.
        let late = if attempt.claim.is_some() { 0 } else { history.late(attempt, waits) };
        if took > allowed && took > allowed + history.stalled(&attempt.process, waits) + late {
            let text = format!("{} waited {} with a timeout of {} ms", who(attempt), ms(took), attempt.wanted.timeout);
            found.push(Violation::of(attempt, (attempt.invoked, attempt.invoked + took), text));
        }
    }
    found
}

/// The longest wait for a grant.
#[must_use]
pub fn longest_wait(history: &History) -> Duration {
    let waits = history.attempts.iter().filter_map(|attempt| Some(attempt.claim.as_ref()?.from - attempt.invoked));
    Duration::from_nanos(waits.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Wanted, What};
    use crate::sample::{BOUNDS, KEY, Sample};

    fn healed() -> Sample {
        Sample::default().and(100, HARNESS, What::Healed)
    }

    #[test]
    fn a_lock_that_nobody_gets_any_more_is_found() {
        let stuck = healed().asks(200, "a").refused(6000, "a", How::Busy).and(6001, "a", What::Ended);
        assert_eq!(stuck.finds(all_goes_on_after_the_faults), 1);
        let well = healed().held("a", 200, 300).and(6001, "a", What::Ended);
        assert_eq!(well.finds(all_goes_on_after_the_faults), 0);
        let given_up = healed().asks(200, "a").refused(1200, "a", How::Busy).and(9000, "a", What::Ended);
        assert_eq!(given_up.finds(all_goes_on_after_the_faults), 0);
    }

    #[test]
    fn each_waiter_whose_host_crashed_may_cost_a_claim() {
        let finds = |dead: u64| {
            let crashed = (0..dead).fold(Sample::default(), |sample, number| {
                let process = format!("p{number}");
                sample.asks(10 + number, &process).and(50, &process, What::Killed)
            });
            let healed = crashed.and(100, HARNESS, What::Healed).asks(200, "a");
            let held = healed.granted(9000, "a", 9290, None).released(9001, "a", How::Done);
            held.and(9999, "a", What::Ended).finds(all_goes_on_after_the_faults)
        };
        assert_eq!(finds(1), 1);
        assert_eq!(finds(3), 0);
    }

    #[test]
    fn a_waiter_behind_a_holder_that_is_polled_late_does_not_starve() {
        let wanted = Wanted { timeout: 6000, expire: 300, renew: true, ..Wanted::default() };
        let asks = What::Acquire { attempt: 9, key: KEY.into(), wanted };
        let waits = healed().held("a", 150, 160).asks(170, "a").granted(180, "a", 9000, None).and(200, "b", asks);
        let refused = What::Refused { attempt: 9, how: How::Busy, text: String::new() };
        let starved = waits.clone().and(6200, "b", refused.clone());
        let ended = |sample: Sample| sample.released(6300, "a", How::Done).and(6400, "a", What::Ended);
        let finds = |sample: Sample| ended(sample).and(6400, "b", What::Ended).finds(all_goes_on_after_the_faults);
        assert_eq!(finds(starved), 1);
        let late = waits.and(6100, "a", What::Late { from: 300_000_000 }).and(6200, "b", refused);
        assert_eq!(finds(late), 0);
    }

    #[test]
    fn a_distant_waiter_behind_many_holders_does_not_starve() {
        let finds = |holders: u64, round_trip| {
            let wanted = Wanted { timeout: 5000, expire: 300, renew: true, ..Wanted::default() };
            let asks = What::Acquire { attempt: 900, key: KEY.into(), wanted };
            let waits = healed().and(200, "a", asks);
            let held =
                (0..holders).fold(waits, |sample, number| sample.held("b", 300 + number * 500, 320 + number * 500));
            let told = What::Refused { attempt: 900, how: How::Busy, text: String::new() };
            let ended = held.and(5200, "a", told).and(5300, "a", What::Ended).and(5300, "b", What::Ended);
            ended.finds_with(
                all_goes_on_after_the_faults,
                &Bounds { round_trip: Duration::from_millis(round_trip), ..BOUNDS },
            )
        };
        assert_eq!(finds(8, 190), 0, "each of the eight takes three round trips");
        assert_eq!(finds(8, 0), 1, "near servers are no excuse");
        assert_eq!(finds(1, 190), 1, "one holder is no excuse");
    }

    #[test]
    fn a_task_that_is_late_for_three_leases_does_not_starve() {
        let finds = |times: u64| {
            let wanted = Wanted { timeout: 9000, expire: 300, renew: true, ..Wanted::default() };
            let asks = healed().and(200, "a", What::Acquire { attempt: 200, key: KEY.into(), wanted });
            let late = (0..times).fold(asks, |sample, time| {
                let (from, to) = (300 + time * 400, 600 + time * 400);
                sample.and(to, "a", What::Late { from: from * 1_000_000 })
            });
            let refused = What::Refused { attempt: 200, how: How::Unreachable, text: String::new() };
            let refused = late.and(3000, "a", refused).held("b", 3100, 3200);
            let ended = |sample: Sample, process| sample.and(9000, process, What::Ended);
            ended(ended(refused, "a"), "b").finds(all_goes_on_after_the_faults)
        };
        assert_eq!((finds(2), finds(3)), (1, 0));
    }

    #[test]
    fn a_process_that_hangs_is_found() {
        assert_eq!(healed().held("a", 200, 300).finds(all_goes_on_after_the_faults), 1);
        let killed = healed().held("a", 200, 300).and(400, "a", What::Killed);
        assert_eq!(killed.finds(all_goes_on_after_the_faults), 0);
    }

    #[test]
    fn a_late_return_is_found() {
        let late = Sample::default().asks(10, "a").refused(1300, "a", How::Busy);
        assert_eq!(late.finds(acquires_return_in_time), 1);
        let stopped = late.and(1200, "a", What::Stalled { from: 100_000_000 });
        assert_eq!(stopped.finds(acquires_return_in_time), 0);
        let in_time = Sample::default().asks(10, "a").refused(1090, "a", How::Busy);
        assert_eq!(in_time.finds(acquires_return_in_time), 0);
    }

    #[test]
    fn an_acquire_that_never_returns_is_found() {
        let hangs = Sample::default().asks(10, "a").and(2000, "b", What::Ended);
        assert_eq!(hangs.finds(acquires_return_in_time), 1);
        let killed = Sample::default().asks(10, "a").and(2000, "a", What::Killed);
        assert_eq!(killed.finds(acquires_return_in_time), 0);
        assert_eq!(killed.and(1990, "a", What::Healed).finds(acquires_return_in_time), 1);
    }
}
