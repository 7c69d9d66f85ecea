//! C7: the server's record of changes agrees with what the holders believed.

use super::{Bounds, Violation, ms, who};
use crate::claims::History;
use crate::event::NEVER;
use crate::owners::End;
use crate::ranges::shared;

/// A key changes from free to a token, keeps its token, or passes to a token from its queue in one step.
#[must_use]
pub fn owners_change_by_the_rules(history: &History, _: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, leases) in history.owners() {
        for pair in leases.windows(2) {
            // The last of the shared leases may have expired a moment before the key.
            if pair[0].end == End::Replaced && !pair[0].is_shared() && !pair[1].next {
                let text = format!("{key} went from {} to {}, which was not queued", pair[0].token, pair[1].token);
                let range = (pair[0].from.0, pair[1].from.1);
                found.push(Violation { check: "", text, key: Some(key.to_owned()), range });
            }
        }
    }
    found
}

/// While a task believes to hold a lock, the server has it for the task's process, without a foreign deletion or an expiry in
/// between.
#[must_use]
pub fn claims_are_backed_by_the_server(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    if bounds.forgetful {
        return found;
    }
    let owners = history.owners();
    if owners.is_empty() {
        return found;
    }
    for (key, attempts) in history.by_key() {
        let leases = owners.get(key).map(Vec::as_slice).unwrap_or_default();
        for (attempt, claim) in history.grants(&attempts) {
            let range = claim.range();
            let near = leases.partition_point(|lease| lease.to.1 < range.0);
            let mut free_from = near.checked_sub(1).map_or(0, |before| leases[before].to.1);
            let mut foreign = Vec::new();
            for lease in leases.iter().skip(near) {
                foreign.push(((free_from, lease.from.0), "free".to_owned()));
                if !lease.is_of(attempt) {
                    foreign.push(((lease.from.1, lease.to.0), format!("owned by {}", lease.token)));
                }
                free_from = lease.to.1;
                if lease.from.0 > range.1 {
                    break;
                }
            }
            foreign.push(((free_from, NEVER), "free".to_owned()));
            for (stretch, state) in foreign {
                if let Some(both) = shared(stretch, range) {
                    let time = ms(both.1 - both.0);
                    let text = format!("{} holds {key} for {time} while it is {state} in the server", who(attempt));
                    found.push(Violation::of(attempt, (attempt.invoked, both.1), text));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Share;
    use crate::sample::Sample;

    #[test]
    fn a_lock_taken_from_its_owner_is_found() {
        let taken = |next| Sample::default().owned(10, "a", 900, false).owned(20, "b", 900, next);
        assert_eq!(taken(false).finds(owners_change_by_the_rules), 1);
        assert_eq!(taken(true).finds(owners_change_by_the_rules), 0);
    }

    #[test]
    fn a_writer_that_the_server_counts_among_readers_is_found() {
        let shared = || Sample::default().shared(9, 309);
        let finds = |share| shared().wants(share).held("a", 10, 100).finds(claims_are_backed_by_the_server);
        assert_eq!((finds(Share::Read), finds(Share::Permit(2)), finds(Share::Alone)), (0, 0, 1));
        let owned = Sample::default().owned(9, "a", 309, false).wants(Share::Read).held("a", 10, 100);
        assert_eq!(owned.finds(claims_are_backed_by_the_server), 1);
        assert_eq!(shared().wants(Share::Read).held("a", 10, 100).gone(50).finds(claims_are_backed_by_the_server), 1);
    }

    #[test]
    fn an_owner_after_an_expiry_is_well() {
        let sample = Sample::default().owned(10, "a", 50, false).owned(90, "b", 300, false);
        assert_eq!(sample.finds(owners_change_by_the_rules), 0);
    }

    #[test]
    fn a_deletion_under_a_holder_is_found() {
        let sample = Sample::default().owned(9, "a", 309, false).held("a", 10, 100);
        assert_eq!(sample.clone().gone(101).finds(claims_are_backed_by_the_server), 0);
        assert_eq!(sample.gone(50).finds(claims_are_backed_by_the_server), 1);
    }

    #[test]
    fn a_holder_that_trusts_its_lease_for_too_long_is_found() {
        let sample = Sample::default().owned(9, "a", 60, false).held("a", 10, 100);
        assert_eq!(sample.finds(claims_are_backed_by_the_server), 1);
    }

    #[test]
    fn a_holder_that_the_server_never_knew_is_found() {
        let sample = Sample::default().owned(9, "b", 309, false).held("a", 10, 100);
        assert_eq!(sample.finds(claims_are_backed_by_the_server), 1);
    }
}
