//! A look at a lock: who owns it on a majority of the servers.

use std::time::Duration;

use super::{Quorum, Voter, start_on};
use crate::clock::Deadline;
use crate::store::quorum::votes::Votes;
use crate::store::{Seen, StoreError};
use futures_util::StreamExt;

impl<S: Voter> Quorum<S> {
    /// Waits for all servers, until the deadline: nobody is in a hurry here. A lock that no token owns on a majority is free,
    /// or is just being asked for.
    pub(super) async fn look_at(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        let mut looking = start_on(self.members.iter(), |member| {
            let key = key.to_owned();
            // Not noted: a look needs a right that locks do not need.
            async move { member.node.inspect(&key, deadline).await }
        });
        let mut votes: Votes<Seen, ()> = self.votes();
        while let Some((number, answer)) = looking.next().await {
            match answer {
                Ok(Some(seen)) => votes.yes.push((number, seen)),
                Ok(None) => votes.no.push((number, ())),
                Err(error) => votes.failed.push((number, error)),
            }
        }
        if votes.yes.len() + votes.no.len() < votes.majority() {
            return Err(self.too_few(&votes));
        }
        Ok(of_majority(&votes.yes.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), self.majority()))
    }
}

impl<S: Voter> Quorum<S> {
    /// The stores of the single servers.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &S> {
        self.members.iter().map(|member| &member.node)
    }

    /// Since when there is no majority: since the last server that would have made one is away.
    pub(super) fn outage_of_majority(&self, key: &str) -> Option<(Duration, StoreError)> {
        let mut votes: Votes<(), ()> = self.votes();
        let mut away = Vec::new();
        for member in &*self.members {
            if let Some((since, error)) = member.node.outage(key) {
                away.push(since);
                votes.failed.push((member.number, error));
            }
        }
        away.sort_unstable_by(|one, other| other.cmp(one));
        // So many servers away leave no majority.
        let too_many = self.members.len() - self.majority() + 1;
        away.get(too_many - 1).map(|since| (*since, self.too_few(&votes)))
    }
}

/// The owner on a majority, for as long as a majority keeps the lease (rule Q1). Processes wait at one server, so the longest
/// queue tells most.
fn of_majority(seen: &[Seen], majority: usize) -> Option<Seen> {
    let owns = |owner: &Seen| seen.iter().filter(|other| other.owner == owner.owner).count() >= majority;
    let owner = seen.iter().find(|seen| owns(seen))?.owner.clone();
    let waiting =
        seen.iter().map(|seen| &seen.waiting).max_by_key(|waiting| waiting.len()).cloned().unwrap_or_default();
    let mut ends: Vec<Duration> =
        seen.iter().filter(|seen| seen.owner == owner).map(|seen| seen.frees_in.unwrap_or(Duration::MAX)).collect();
    ends.sort_unstable_by(|one, other| other.cmp(one));
    let frees_in = ends.get(majority - 1).copied().filter(|end| *end < Duration::MAX);
    Some(Seen { owner, frees_in, sharing: Vec::new(), waiting })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    fn seen(owner: &str, seconds: u64, waiting: usize) -> Seen {
        let waiting = (0..waiting).map(|number| Token::foreign(&number.to_string())).collect();
        let frees_in = Some(Duration::from_secs(seconds));
        Seen { owner: Token::foreign(owner), frees_in, sharing: Vec::new(), waiting }
    }

    #[test]
    fn the_owner_is_the_one_of_a_majority_and_its_time_is_that_of_the_majority() {
        let shown = of_majority(&[seen("a", 9, 0), seen("b", 30, 0), seen("a", 5, 2)], 2).unwrap();
        assert_eq!((shown.owner.as_str(), shown.frees_in, shown.waiting.len()), ("a", Some(Duration::from_secs(5)), 2));
        assert!(of_majority(&[seen("a", 9, 0), seen("b", 9, 0)], 2).is_none());
    }
}
