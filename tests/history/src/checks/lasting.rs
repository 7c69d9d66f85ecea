//! C10: without faults, a hold lasts.

use std::time::Duration;

use super::{Bounds, Violation, ms, who};
use crate::claims::{Attempt, History};
use crate::event::{How, span};

/// How long the effects of a fault last.
const AFTER: u64 = 3_000_000_000;

/// Without faults, a renewed hold is never lost, and another hold not before its lease is over, minus the allowance for
/// clock drift.
#[must_use]
pub fn holds_last(history: &History, bounds: &Bounds) -> Vec<Violation> {
    if !bounds.tells || bounds.forgetful {
        return Vec::new();
    }
    history.attempts.iter().filter_map(|attempt| ended_early(history, bounds, attempt)).collect()
}

fn ended_early(history: &History, bounds: &Bounds, attempt: &Attempt) -> Option<Violation> {
    let claim = attempt.claim.as_ref()?;
    let told = claim.answer.filter(|(_, how)| *how == How::Lost).map(|(at, _)| at);
    // The first look that found it ended may have been late.
    let ended = claim.lapsed.or(told)?.max(claim.until);
    let lease = attempt.wanted.expire();
    let whole = lease.saturating_sub(lease / 100 + Duration::from_millis(2) + bounds.noise + bounds.round_trip * 5);
    let is_early = attempt.wanted.renew || ended < claim.from + span(whole);
    let is_calm = history.is_calm((attempt.invoked.saturating_sub(AFTER), ended));
    (is_early && is_calm).then(|| {
        let (name, time) = (who(attempt), ms(ended - claim.from));
        let renewed = if attempt.wanted.renew { ", renewed," } else { "" };
        let text = format!("{name}'s hold of {}{renewed} with a lease of {lease:?} ended after {time}", attempt.key);
        Violation::of(attempt, (attempt.invoked, ended), text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Wanted;
    use crate::event::What;
    use crate::sample::{KEY, Sample};

    fn lost(renew: bool, after: u64) -> Sample {
        let wanted = Wanted { timeout: 1000, expire: 3000, renew, ..Wanted::default() };
        let sample = Sample::default().and(9000, "a", What::Acquire { attempt: 1, key: KEY.into(), wanted });
        let seen = sample.and(9010, "a", What::Granted { attempt: 1, until: 9_020_000_000, fence: None });
        let (attempt, until, how) = (1, 0, How::Lost);
        seen.and(9010 + after, "a", What::Seen { attempt, until }).and(
            9011 + after,
            "a",
            What::Released { attempt, how, text: String::new() },
        )
    }

    #[test]
    fn a_renewed_hold_that_is_lost_is_found() {
        assert_eq!(lost(true, 5000).finds(holds_last), 1);
        let cut = What::Fault { kind: "Cut".into(), target: "wire".into(), from: 10_000_000_000 };
        assert_eq!(lost(true, 5000).and(10_001, "harness", cut).finds(holds_last), 0);
    }

    #[test]
    fn a_hold_that_ends_before_its_lease_is_found() {
        assert_eq!(lost(false, 2500).finds(holds_last), 1);
        assert_eq!(lost(false, 2970).finds(holds_last), 0);
    }
}
