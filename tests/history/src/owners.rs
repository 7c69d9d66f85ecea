//! The owners of a lock's key in the server over time.

use std::collections::BTreeMap;

use super::claims::{Attempt, History};
use super::event::{Change, NEVER, Share, What};

/// A lease in the server. Its start is between the two instants of `from`, its end between those of `to`.
#[derive(Clone, Debug)]
pub struct Owned {
    /// The owner's token.
    pub token: String,
    /// Not before the first, not after the second.
    pub from: (u64, u64),
    /// Not before the first, not after the second.
    pub to: (u64, u64),
    /// When it would have expired.
    pub until: u64,
    /// How it ended.
    pub end: End,
    /// Whether the token was taken from the queue.
    pub next: bool,
}

/// How a lease ended in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has not ended in the record.
    Open,
    /// It expired.
    Expired,
    /// It was deleted.
    Deleted,
    /// Another token replaced it.
    Replaced,
    /// It was lost with all other data.
    Forgotten,
}

/// The value of a lock's key while the lock is shared, instead of a token.
const SHARED: &str = "cache_lock|shared";

/// How far the server's clock, in whole milliseconds, may differ from ours.
pub const ROUNDING: u64 = 5_000_000;

impl Owned {
    /// The process that the token names, if it names one.
    #[must_use]
    pub fn process(&self) -> Option<&str> {
        self.token.rsplit_once('@').map(|(_, label)| label)
    }

    /// Whether `attempt` may be the one that got it. Shared leases are one lease here, because the lock's key names none of them.
    #[must_use]
    pub fn is_of(&self, attempt: &Attempt) -> bool {
        let shares = attempt.wanted.share != Share::Alone;
        self.process().is_none_or(|own| own == attempt.process) && shares == self.is_shared()
    }

    /// Whether it stands for all shared leases of the lock.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.token == SHARED
    }
}

impl History {
    /// The leases of each lock, one after the other; empty without a record of the server.
    #[must_use]
    pub fn owners(&self) -> BTreeMap<&str, Vec<Owned>> {
        let mut keys: BTreeMap<&str, Vec<Owned>> = BTreeMap::new();
        for event in &self.events {
            match &event.what {
                What::Changed { since, key, to } => apply(keys.entry(key).or_default(), (*since, event.t), to),
                What::Forgot => {
                    for leases in keys.values_mut() {
                        end(leases, (event.t, event.t), End::Forgotten);
                    }
                }
                _ => {}
            }
        }
        let last = self.last();
        for leases in keys.values_mut() {
            if let Some(open) = leases.last_mut().filter(|lease| lease.end == End::Open && lease.until < last) {
                (open.to, open.end) = (around(open.until), End::Expired);
            }
        }
        keys
    }
}

fn apply(leases: &mut Vec<Owned>, at: (u64, u64), change: &Change) {
    match change {
        Change::Gone => end(leases, at, End::Deleted),
        Change::Ends { until } => {
            if let Some(open) = leases.last_mut().filter(|lease| lease.end == End::Open) {
                open.until = *until;
            }
        }
        Change::Owned { token, until, next } => {
            // If a lease expired and was granted to the same token again, that is a new lease.
            let is_same = |lease: &Owned| lease.token == *token && lease.until.saturating_add(ROUNDING) >= at.0;
            if let Some(open) = leases.last_mut().filter(|lease| lease.end == End::Open && is_same(lease)) {
                open.until = *until;
                return;
            }
            end(leases, at, End::Replaced);
            leases.push(Owned {
                token: token.clone(),
                from: at,
                to: (NEVER, NEVER),
                until: *until,
                end: End::Open,
                next: *next,
            });
        }
    }
}

fn end(leases: &mut [Owned], at: (u64, u64), how: End) {
    let Some(open) = leases.last_mut().filter(|lease| lease.end == End::Open) else { return };
    // The server deletes an expired key when it notices it.
    if open.until < at.1.saturating_add(ROUNDING) {
        // Somebody may have deleted it a little before its end.
        let (early, late) = around(open.until);
        (open.to, open.end) = ((early.min(at.0), late.min(at.1)), End::Expired);
    } else {
        (open.to, open.end) = (at, how);
    }
}

fn around(instant: u64) -> (u64, u64) {
    (instant.saturating_sub(ROUNDING), instant.saturating_add(ROUNDING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{KEY, Sample};

    fn ends(sample: Sample) -> Vec<(End, (u64, u64))> {
        let history = sample.and(9000, "harness", What::Healed).history();
        history.owners()[KEY]
            .iter()
            .map(|lease| (lease.end, (lease.to.0 / 1_000_000, lease.to.1 / 1_000_000)))
            .collect()
    }

    #[test]
    fn a_lease_ends_by_deletion_by_another_token_or_by_itself() {
        let owned = Sample::default().owned(10, "a", 300, false);
        assert_eq!(ends(owned.clone().gone(50)), [(End::Deleted, (49, 50))]);
        assert_eq!(ends(owned.clone().owned(50, "b", 400, true))[0], (End::Replaced, (49, 50)));
        assert_eq!(ends(owned.clone()), [(End::Expired, (295, 305))]);
        // The server noticed and deleted it long after.
        assert_eq!(ends(owned.clone().gone(800)), [(End::Expired, (295, 305))]);
        // So close to its end that it may be an expiry or a deletion.
        assert_eq!(ends(owned.gone(298)), [(End::Expired, (295, 298))]);
    }

    #[test]
    fn a_token_that_is_granted_once_more_after_its_lease_ended_has_a_lease_of_its_own() {
        let owned = Sample::default().owned(10, "a", 300, false);
        let again = ends(owned.clone().owned(800, "a", 900, false).gone(820));
        assert_eq!(again, [(End::Expired, (295, 305)), (End::Deleted, (819, 820))]);
        assert_eq!(ends(owned.owned(200, "a", 900, false).gone(820)), [(End::Deleted, (819, 820))]);
    }

    #[test]
    fn a_renewal_moves_the_end() {
        let renewed = Sample::default().owned(10, "a", 300, false).and(
            200,
            "server",
            What::Changed { since: 0, key: KEY.into(), to: Change::Ends { until: 500_000_000 } },
        );
        assert_eq!(ends(renewed), [(End::Expired, (495, 505))]);
    }
}
