//! [`Majority`]: who owns a lock on more than half of the servers of a quorum, and until when.

use std::collections::BTreeMap;

use history::event::Change;

pub(super) struct Majority {
    servers: usize,
    locks: BTreeMap<String, Lock>,
}

/// A token, and when its lease ends.
type Lease = (String, u64);

#[derive(Default)]
struct Lock {
    /// The lease on each server.
    on: BTreeMap<usize, Lease>,
    /// The owner on a majority after the last change.
    owner: Option<Lease>,
}

impl Majority {
    pub(super) fn of(servers: usize) -> Self {
        Self { servers, locks: BTreeMap::new() }
    }

    /// Handles a change of a lock on one server. Returns the change on a majority, if any.
    pub(super) fn count(&mut self, server: usize, key: &str, change: Change, now: u64) -> Option<Change> {
        let lock = self.locks.entry(key.to_owned()).or_default();
        let is_next = matches!(change, Change::Owned { next: true, .. });
        match change {
            Change::Owned { token, until, .. } => drop(lock.on.insert(server, (token, until))),
            Change::Ends { until } => {
                if let Some(lease) = lock.on.get_mut(&server) {
                    lease.1 = until;
                }
            }
            Change::Gone => drop(lock.on.remove(&server)),
        }
        let owner = lock.owner(self.servers / 2 + 1, now);
        let before = std::mem::replace(&mut lock.owner, owner.clone()).filter(|(_, until)| *until > now);
        match (before, owner) {
            (before, owner) if before == owner => None,
            (Some((one, _)), Some((other, until))) if one == other => Some(Change::Ends { until }),
            (_, Some((token, until))) => Some(Change::Owned { token, until, next: is_next }),
            (Some(_), None) => Some(Change::Gone),
            (None, None) => None,
        }
    }
}

impl Lock {
    /// The token that at least `majority` servers have, and until when they do.
    fn owner(&self, majority: usize, now: u64) -> Option<Lease> {
        let alive = || self.on.values().filter(|(_, until)| *until > now);
        alive().find_map(|(token, _)| {
            let mut untils: Vec<u64> = alive().filter(|(other, _)| other == token).map(|(_, until)| *until).collect();
            untils.sort_unstable_by_key(|until| std::cmp::Reverse(*until));
            untils.get(majority - 1).map(|until| (token.clone(), *until))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(token: &str, until: u64) -> Change {
        Change::Owned { token: token.to_owned(), until, next: false }
    }

    #[test]
    fn a_token_owns_a_lock_from_its_second_server_of_three_to_its_last_but_one() {
        let mut majority = Majority::of(3);
        let mut count = |server, change| majority.count(server, "k", change, 10);
        assert_eq!(count(0, owned("t", 90)), None);
        assert_eq!(count(1, owned("u", 90)), None, "it is split");
        assert_eq!(count(2, owned("t", 80)), Some(owned("t", 80)));
        assert_eq!(count(1, Change::Gone), None);
        assert_eq!(count(1, owned("t", 85)), Some(Change::Ends { until: 85 }));
        assert_eq!(count(0, Change::Gone), Some(Change::Ends { until: 80 }));
        assert_eq!(count(1, Change::Gone), Some(Change::Gone));
        assert_eq!(count(2, Change::Gone), None);
    }

    #[test]
    fn a_lease_that_is_over_on_a_server_does_not_count() {
        let mut majority = Majority::of(3);
        assert_eq!(majority.count(0, "k", owned("t", 20), 10), None);
        assert_eq!(majority.count(1, "k", owned("t", 90), 20), None);
        assert_eq!(majority.count(2, "k", owned("t", 90), 30), Some(owned("t", 90)));
        assert_eq!(majority.count(0, "k", owned("u", 200), 90), None, "its end is no change");
        assert_eq!(majority.count(1, "k", owned("u", 200), 95), Some(owned("u", 200)));
    }
}
