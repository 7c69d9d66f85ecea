//! C1: holds of one lock overlap only as far as they share it.

use std::collections::HashSet;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, Claim, History};
use crate::event::Share;

/// While a task has a lock exclusively, no other task believes to have it. While a task has a permit of N, fewer than N others
/// believe to have one. A server that loses its data is excused.
#[must_use]
pub fn claims_never_overlap(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if bounds.forgetful {
        return found;
    }
    for attempts in history.by_key().values() {
        let mut held: Vec<Grant<'_>> = Vec::new();
        for grant in history.grants(attempts) {
            let (from, to) = grant.1.range();
            held.retain(|(_, other)| other.end() > from);
            if to > from {
                found.extend(overlap(grant, &held).or_else(|| one_too_many(grant, &held)));
            }
            held.push(grant);
        }
    }
    found
}

type Grant<'a> = (&'a Attempt, &'a Claim);

/// The first of the current holders that excludes this grant, or that this grant excludes.
fn overlap((attempt, claim): Grant<'_>, held: &[Grant<'_>]) -> Option<Violation> {
    let excludes = |(other, _): &&Grant<'_>| [attempt, *other].iter().any(|one| one.wanted.share == Share::Alone);
    let (other, theirs) = held.iter().filter(excludes).max_by_key(|(_, claim)| claim.end())?;
    let until = claim.end().min(theirs.end());
    let text = format!("{} and {} both hold {} for {}", who(other), who(attempt), attempt.key, ms(until - claim.from));
    Some(Violation::of(attempt, (theirs.from, until), text))
}

/// A permit of N together with N others. The others that count are those that had the lock before this task asked for it, and those whose
/// own N is not greater: then the last of them was one too many. The readers of a process share one lease.
fn one_too_many((attempt, claim): Grant<'_>, held: &[Grant<'_>]) -> Option<Violation> {
    let Share::Permit(most) = attempt.wanted.share else { return None };
    let mut reading = HashSet::new();
    let beside = held.iter().filter(|(other, theirs)| match other.wanted.share {
        Share::Permit(of) => of <= most || theirs.from <= attempt.invoked,
        Share::Read => theirs.from <= attempt.invoked && reading.insert(&other.process),
        Share::Alone => false,
    });
    let beside: Vec<_> = beside.collect();
    let count = beside.len();
    let first = beside.iter().map(|(_, theirs)| theirs.from).min().filter(|_| count >= most as usize)?;
    let last = beside.iter().map(|(_, theirs)| theirs.end()).max().unwrap_or(first);
    let text = format!("{} has one of {most} permits of {} beside {count} others", who(attempt), attempt.key);
    Some(Violation::of(attempt, (first, claim.end().min(last)), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{How, What};
    use crate::sample::{BOUNDS, Sample};

    #[test]
    fn an_overlap_is_found() {
        let sample = Sample::default().held("a", 10, 30).held("b", 20, 40);
        assert_eq!(sample.finds(claims_never_overlap), 1);
        let forgetful = Bounds { forgetful: true, ..BOUNDS };
        assert_eq!(sample.finds_with(claims_never_overlap, &forgetful), 0);
    }

    #[test]
    fn an_overlap_with_a_long_claim_is_found_behind_a_short_one() {
        let sample = Sample::default().held("a", 10, 90).held("b", 20, 30).held("c", 40, 50);
        assert_eq!(sample.finds(claims_never_overlap), 2);
    }

    #[test]
    fn a_claim_ends_with_its_deadline_or_its_process() {
        let one = Sample::default().asks(1, "a").granted(2, "a", 100, None).released(200, "a", How::Lost);
        assert_eq!(one.held("b", 101, 150).finds(claims_never_overlap), 0);
        let killed = Sample::default().asks(1, "a").granted(2, "a", 100, None).and(50, "a", What::Killed);
        assert_eq!(killed.held("b", 51, 90).finds(claims_never_overlap), 0);
    }

    #[test]
    fn one_after_the_other_is_well() {
        assert_eq!(Sample::default().held("a", 10, 30).held("b", 31, 40).finds(claims_never_overlap), 0);
    }

    /// A hold with this share from `from` to `to`.
    fn holds(sample: Sample, process: &str, share: Share, from: u64, to: u64) -> Sample {
        sample.wants(share).held(process, from, to)
    }

    fn finds(holds_of: &[(&str, Share, u64, u64)]) -> usize {
        let all =
            |sample, (process, share, from, to): &(&str, Share, u64, u64)| holds(sample, process, *share, *from, *to);
        holds_of.iter().fold(Sample::default(), all).finds(claims_never_overlap)
    }

    #[test]
    fn readers_share_and_a_writer_beside_a_reader_is_found() {
        let (read, write) = (Share::Read, Share::Alone);
        assert_eq!(finds(&[("a", read, 10, 40), ("b", read, 20, 60), ("a", read, 30, 50), ("c", write, 61, 70)]), 0);
        assert_eq!(finds(&[("a", read, 10, 40), ("b", read, 20, 60), ("c", write, 50, 70)]), 1);
        assert_eq!(finds(&[("c", write, 10, 40), ("a", read, 30, 50), ("b", read, 35, 50)]), 2);
        // The reader that is still there is not the last that was granted.
        assert_eq!(finds(&[("a", read, 10, 90), ("b", read, 20, 30), ("c", write, 50, 70)]), 1);
        assert_eq!(finds(&[("a", Share::Permit(3), 10, 40), ("c", write, 30, 50)]), 1);
    }

    #[test]
    fn one_permit_too_many_is_found() {
        let two = Share::Permit(2);
        assert_eq!(finds(&[("a", two, 10, 40), ("a", two, 20, 60), ("b", two, 41, 70), ("c", two, 61, 80)]), 0);
        assert_eq!(finds(&[("a", two, 10, 40), ("a", two, 20, 60), ("b", two, 30, 70)]), 1);
        assert_eq!(finds(&[("a", Share::Permit(1), 10, 40), ("b", Share::Permit(1), 30, 70)]), 1);
    }

    #[test]
    fn each_request_counts_by_its_own_number_of_permits() {
        let (two, four) = (Share::Permit(2), Share::Permit(4));
        assert_eq!(finds(&[("a", two, 10, 40), ("b", four, 20, 60), ("c", four, 30, 60), ("d", four, 35, 60)]), 0);
        assert_eq!(finds(&[("a", four, 10, 60), ("b", four, 20, 60), ("c", two, 30, 50)]), 1);
        // A task that asked before the others had their permits may have been granted first, and recorded last.
        let asked = Sample::default().wants(two).asks(5, "c").wants(four).held("a", 10, 60).held("b", 20, 60);
        let granted = What::Granted { attempt: 1, until: 90_000_000, fence: None };
        assert_eq!(asked.and(30, "c", granted).finds(claims_never_overlap), 0);
    }

    #[test]
    fn a_permit_counts_the_readers_of_a_process_once() {
        let (read, two) = (Share::Read, Share::Permit(2));
        assert_eq!(finds(&[("a", read, 10, 60), ("a", read, 15, 60), ("c", two, 30, 50)]), 0);
        assert_eq!(finds(&[("a", read, 10, 60), ("b", read, 15, 60), ("c", two, 30, 50)]), 1);
    }
}
