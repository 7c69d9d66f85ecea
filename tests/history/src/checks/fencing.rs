//! C2: fencing tokens grow from hold to hold.

use std::collections::{BTreeMap, HashMap};

use super::{Bounds, Violation, who};
use crate::claims::History;
use crate::event::Share;
use crate::owners::Owned;

/// A hold that was granted after the end of another one has a greater fencing token, and no two tokens are equal. If holds share the
/// lock, the one whose reply arrives later may have been granted earlier. So a hold must only have a greater token than those that
/// were granted before its task asked.
///
/// This compares with the time of the *grant*, because an acquire may have waited for long. If the server loses its data, a process
/// may hand a lost lease on while another process has the lock. Then all tokens of a lease must be below those of every lease that
/// the server granted later.
#[must_use]
pub fn fences_increase(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    let owners = if bounds.forgetful { history.owners() } else { BTreeMap::new() };
    for (key, attempts) in history.by_key() {
        let leases = owners.get(key).map(Vec::as_slice).unwrap_or_default();
        let (mut alone, mut shared) = (Vec::new(), Vec::new());
        let mut starts = Vec::new();
        let mut seen = HashMap::new();
        for (attempt, claim) in history.grants(&attempts) {
            let Some(fence) = claim.fence else { continue };
            if let Some(other) = seen.insert(fence, attempt) {
                let text = format!("{} and {} have the same fencing token {fence}", who(other), who(attempt));
                found.push(Violation::of(attempt, (other.invoked, claim.from), text));
            }
            if bounds.forgetful {
                let own = |lease: &&Owned| lease.is_of(attempt) && lease.from.0 <= claim.from;
                if let Some(lease) = leases.iter().rev().find(own) {
                    starts.push((lease.from.0, lease.from.0.saturating_sub(1), fence, attempt));
                }
                continue;
            }
            let ends = if attempt.wanted.share == Share::Alone { &mut alone } else { &mut shared };
            ends.push((claim.end(), claim.from, fence, attempt));
            starts.push((claim.from, attempt.invoked, fence, attempt));
        }
        let all = alone.iter().chain(&shared).copied().collect();
        found.extend(inversions(all, alone.clone()));
        found.extend(inversions(alone, shared));
        found.extend(inversions(starts.clone(), starts));
    }
    found
}

type Point<'a> = (u64, u64, u64, &'a crate::claims::Attempt);

/// The points of `by_start` that start after the end of a point with a greater number.
fn inversions<'a>(mut by_end: Vec<Point<'a>>, mut by_start: Vec<Point<'a>>) -> Vec<Violation> {
    by_end.sort_by_key(|point| point.0);
    by_start.sort_by_key(|point| point.1);
    let mut ended = by_end.into_iter().peekable();
    let mut greatest: Option<Point<'_>> = None;
    let mut found = Vec::new();
    for point in by_start {
        while let Some(done) = ended.next_if(|done| done.0 <= point.1) {
            if greatest.is_none_or(|other| other.2 < done.2) {
                greatest = Some(done);
            }
        }
        if let Some(other) = greatest.filter(|other| other.2 > point.2) {
            let (one, two) = (who(other.3), who(point.3));
            let text = format!("{two} got fencing token {} after {one} had {}", point.2, other.2);
            found.push(Violation::of(point.3, (other.3.invoked, point.0.max(point.1)), text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{How, What};
    use crate::sample::{BOUNDS, Sample};

    #[test]
    fn a_smaller_or_equal_token_after_a_greater_one_is_found() {
        let sample = Sample::default().fenced("a", 10, 20, Some(7));
        assert!(sample.clone().fenced("b", 30, 40, Some(6)).finds(fences_increase) > 0);
        assert!(sample.clone().fenced("b", 30, 40, Some(7)).finds(fences_increase) > 0);
        assert_eq!(sample.fenced("b", 30, 40, Some(8)).finds(fences_increase), 0);
    }

    #[test]
    fn a_token_drawn_before_waiting_is_found() {
        // `b` asks first, has already drawn its token, and is granted last.
        let sample = Sample::default().fenced("a", 10, 20, Some(7));
        let late = sample.asks(1, "b").granted(30, "b", 90, Some(6)).released(40, "b", How::Done);
        assert!(late.finds(fences_increase) > 0);
    }

    #[test]
    fn readers_are_compared_by_their_calls_and_with_writers_by_their_grants() {
        let read = || Sample::default().wants(Share::Read);
        // The reply to `a` is late: `b` drew its token later, and has already released.
        let late = read().asks(1, "a").fenced("b", 10, 20, Some(7));
        let granted = What::Granted { attempt: 1, until: 90_000_000, fence: Some(6) };
        assert_eq!(late.and(30, "a", granted.clone()).finds(fences_increase), 0);
        assert!(read().fenced("b", 10, 20, Some(7)).fenced("a", 30, 40, Some(6)).finds(fences_increase) > 0);
        let writer = read().asks(1, "a").wants(Share::Alone).fenced("b", 10, 20, Some(7));
        assert!(writer.and(30, "a", granted.clone()).finds(fences_increase) > 0);
        let reader = Sample::default().asks(1, "a").wants(Share::Read).fenced("b", 10, 20, Some(7));
        assert!(reader.and(30, "a", granted).finds(fences_increase) > 0);
    }

    #[test]
    fn claims_that_overlap_are_compared_by_their_calls() {
        let sample = Sample::default().fenced("a", 10, 90, Some(7));
        assert!(sample.fenced("b", 20, 30, Some(6)).finds(fences_increase) > 0);
    }

    #[test]
    fn a_forgotten_lease_has_tokens_below_those_of_later_leases() {
        let handed_on = |fence| {
            let forgotten = Sample::default().owned(9, "a", 300, false).and(15, "server", What::Forgot);
            let sample = forgotten.owned(19, "b", 310, false).fenced("b", 20, 25, Some(20));
            let sample = sample.fenced("a", 30, 40, Some(fence));
            let bounds = Bounds { forgetful: true, ..BOUNDS };
            (sample.finds(fences_increase) > 0, sample.finds_with(fences_increase, &bounds) > 0)
        };
        assert_eq!(handed_on(10), (true, false));
        assert_eq!(handed_on(30), (false, true));
    }
}
