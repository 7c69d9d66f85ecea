//! Finds what one server alone still has of a lock.
//!
//! The lock's holder was cut off from that server, or died, while it gave the lock back, and nobody will pass it on there: who
//! waits in that server's queue would wait until the lease ends. So the safety net looks at the others, too.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::asking::RETRY_PARTIAL_AFTER;
use super::votes::{Verdict, Votes};
use super::{Quorum, start_on};
use crate::clock::{Deadline, Moment};
use crate::store::voter::Voter;
use crate::store::{Answer, Ask, Cause, StoreError};
use crate::token::Token;

impl<S: Voter> Quorum<S> {
    /// The places of those locks that all servers are to be asked for: the `first` refused them to the safety net, and the others
    /// would not.
    pub(super) async fn stale_minority(
        &self,
        first: usize,
        asks: &[Ask],
        answers: &mut [Result<Answer, StoreError>],
        deadline: Deadline,
    ) -> Vec<usize> {
        let overdue = asks.iter().enumerate().filter(|(_, ask)| ask.cause == Cause::Silence);
        let refused = overdue.filter_map(|(place, _)| Some((place, owner(answers.get(place))?)));
        let suspects = self.free_elsewhere(first, asks, refused.collect(), deadline).await;
        let (Some(member), false) = (self.members.get(first), suspects.is_empty()) else { return Vec::new() };
        // So it is for a moment whenever a lock is passed on: then its owner is soon another one, or has the others, too.
        sleep(RETRY_PARTIAL_AFTER).await;
        let asked: Vec<Ask> = suspects.iter().filter_map(|(place, _)| asks.get(*place).cloned()).collect();
        let Ok(again) = member.node.ask(&asked, deadline.counted_from(Moment::now())).await else { return Vec::new() };
        let (mut granted, mut same) = (Vec::new(), Vec::new());
        for ((place, before), answer) in suspects.into_iter().zip(again) {
            match &answer {
                Ok(Answer::Granted(_)) => granted.push(place),
                Ok(Answer::Busy(busy)) if busy.owner == before => same.push((place, before)),
                _ => {}
            }
            if let Some(known) = answers.get_mut(place) {
                *known = answer;
            }
        }
        granted.extend(self.free_elsewhere(first, asks, same, deadline).await.into_iter().map(|(place, _)| place));
        granted
    }

    /// Those of the locks that a majority of all servers would grant, without the `first`.
    async fn free_elsewhere(
        &self,
        first: usize,
        asks: &[Ask],
        owned: Vec<(usize, Token)>,
        deadline: Deadline,
    ) -> Vec<(usize, Token)> {
        if owned.is_empty() {
            return owned;
        }
        let (deadline, patience) = (deadline.counted_from(Moment::now()), self.patience);
        let keys = owned.iter().filter_map(|(place, _)| asks.get(*place)).map(|ask| Arc::clone(&ask.key));
        let keys: Arc<[Arc<str>]> = keys.collect();
        let others = self.members.iter().filter(|member| member.number != first && !member.is_doubtful());
        let looking = start_on(others, |member| {
            let keys = Arc::clone(&keys);
            // A task: that a server is silent is noticed also when nobody waits for it any more.
            let looking = tokio::spawn(async move { member.note(deadline, member.node.owners(&keys, deadline).await) });
            async move {
                let looked = timeout(patience, looking).await.ok().and_then(Result::ok);
                looked.unwrap_or_else(|| Err(StoreError::no_answer()))
            }
        });
        let vote = |votes: &mut Votes<Option<Token>, ()>, number, owner| votes.yes.push((number, owner));
        let (found, _) = self.decide(keys.len(), looking, vote, |_| Verdict::Open).await;
        // Where somebody else has them, asking would queue there, and split the votes at the next hand-off.
        let are_free = |(_, votes): &(_, Votes<Option<Token>, ()>)| {
            votes.yes.iter().filter(|(_, owner)| owner.is_none()).count() >= self.majority()
        };
        owned.into_iter().zip(found).filter(are_free).map(|(owned, _)| owned).collect()
    }
}

fn owner(answer: Option<&Result<Answer, StoreError>>) -> Option<Token> {
    match answer {
        Some(Ok(Answer::Busy(busy))) => Some(busy.owner.clone()),
        _ => None,
    }
}
