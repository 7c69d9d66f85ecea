//! C1: holds of one lock never overlap.

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, History};
use crate::ranges::shared;

/// Two tasks never believe at the same time that they hold one lock; a server that forgets is excused.
#[must_use]
pub fn claims_never_overlap(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if bounds.forgetful {
        return found;
    }
    for attempts in history.by_key().values() {
        // Against the claim that lasts longest of those before: no other overlaps when this one does not.
        let mut longest: Option<(&Attempt, (u64, u64))> = None;
        for (attempt, claim) in history.grants(attempts) {
            let range = claim.range();
            if let Some((other, earlier)) = &longest
                && let Some(both) = shared(*earlier, range)
            {
                let (one, two) = (who(other), who(attempt));
                let text = format!("{one} and {two} both hold {} for {}", attempt.key, ms(both.1 - both.0));
                found.push(Violation::of(attempt, (earlier.0, both.1), text));
            }
            if longest.as_ref().is_none_or(|(_, earlier)| earlier.1 < range.1) {
                longest = Some((attempt, range));
            }
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
}
