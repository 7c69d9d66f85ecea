//! Finds locks whose lease stands on a minority of servers only.
//!
//! The holder of such a lock died, or was cut off from the server, while it released the lock. Nobody will pass the lock on
//! there. A process that waits in that server's queue would wait until the lease ends, so the safety net also looks at the
//! other servers.

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
    /// The places of the locks that all servers have to be asked for: the `first` server refused them to the safety net, and
    /// the others would not.
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
        // Every hand-off looks like this for a moment, so check again: by then the owner has changed, or owns the lock on
        // the other servers, too.
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

    /// The locks that a majority of all servers would grant, or has granted, without the `first`.
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
            // A task: a silent server is noticed even when nobody waits any more.
            let looking = tokio::spawn(async move { member.note(deadline, member.node.owners(&keys, deadline).await) });
            async move {
                let looked = timeout(patience, looking).await.ok().and_then(Result::ok);
                looked.unwrap_or_else(|| Err(StoreError::no_answer()))
            }
        });
        let vote = |votes: &mut Votes<Option<Token>, ()>, number, owner| votes.yes.push((number, owner));
        let (found, _) = self.decide(keys.len(), looking, vote, |_| Verdict::Open).await;
        // Where another token has the lock, an ask would queue, and split the votes at the next hand-off.
        // Where the asker's own token has the lock, the push of that grant was lost.
        let are_free = |((place, _), votes): &((usize, Token), Votes<Option<Token>, ()>)| {
            let own = asks.get(*place).map(|ask| &ask.token);
            let is_free = |owner: &Option<Token>| owner.is_none() || owner.as_ref() == own;
            votes.yes.iter().filter(|(_, owner)| is_free(owner)).count() >= self.majority()
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
