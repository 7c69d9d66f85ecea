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
        let mut looking = start_on(&*self.members, |member| {
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

    /// The stores of the single servers.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &S> {
        self.members.iter().map(|member| &member.node)
    }
}

/// The owner on a majority, for as long as a majority keeps the lease (rule Q1). Nobody knows who waits.
fn of_majority(seen: &[Seen], majority: usize) -> Option<Seen> {
    let owns = |owner: &Seen| seen.iter().filter(|other| other.owner == owner.owner).count() >= majority;
    let owner = seen.iter().find(|seen| owns(seen))?.owner.clone();
    let mut ends: Vec<Duration> =
        seen.iter().filter(|seen| seen.owner == owner).map(|seen| seen.frees_in.unwrap_or(Duration::MAX)).collect();
    ends.sort_unstable_by(|one, other| other.cmp(one));
    let frees_in = ends.get(majority - 1).copied().filter(|end| *end < Duration::MAX);
    Some(Seen { owner, frees_in, sharing: Vec::new(), waiting: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    fn seen(owner: &str, seconds: u64) -> Seen {
        let frees_in = Some(Duration::from_secs(seconds));
        Seen { owner: Token::foreign(owner), frees_in, sharing: Vec::new(), waiting: Vec::new() }
    }

    #[test]
    fn the_owner_is_the_one_of_a_majority_and_its_time_is_that_of_the_majority() {
        let shown = of_majority(&[seen("a", 9), seen("b", 30), seen("a", 5)], 2).unwrap();
        assert_eq!((shown.owner.as_str(), shown.frees_in), ("a", Some(Duration::from_secs(5))));
        assert!(of_majority(&[seen("a", 9), seen("b", 9)], 2).is_none());
    }
}
