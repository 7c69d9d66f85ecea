//! Finds what one server alone still has of a lock.
//!
//! The lock's holder was cut off from that server, or died, while it gave the lock back, and nobody will pass it on there: who
//! waits in that server's queue would wait until the lease ends. So the safety net looks at the others, too.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::asking::AGAIN;
use super::node::{Member, Node};
use super::votes::{Verdict, Votes};
use super::{Quorum, each};
use crate::clock::{Deadline, Moment};
use crate::store::{Answer, Answers, Ask, Cause, Retry, StoreError};
use crate::token::Token;

impl<S: Node> Quorum<S> {
    /// The places of those locks that the `first` server refused the safety net, and a majority would grant it.
    pub(super) async fn left_over(
        &self,
        first: usize,
        asks: &[Ask],
        answers: &mut [Result<Answer, StoreError>],
        by: Deadline,
    ) -> Vec<usize> {
        let overdue = asks.iter().enumerate().filter(|(_, ask)| ask.cause == Cause::Silence).map(|(place, _)| place);
        let refused = overdue.filter(|place| owner(answers, *place).is_some()).collect();
        let suspects = self.free_elsewhere(first, asks, refused, by).await;
        let (Some(member), false) = (self.members.get(first), suspects.is_empty()) else { return Vec::new() };
        // So it is for a moment whenever a lock is passed on: then its owner is soon another one, or has the others, too.
        sleep(AGAIN).await;
        let asked: Vec<Ask> = suspects.iter().filter_map(|place| asks.get(*place).cloned()).collect();
        let Ok(again) = member.node.ask(&asked, by.counted_from(Moment::now())).await else { return Vec::new() };
        let mut same = Vec::new();
        for (place, answer) in suspects.into_iter().zip(again) {
            let before = owner(answers, place).cloned();
            if let Some(known) = answers.get_mut(place) {
                *known = answer;
            }
            if owner(answers, place) == before.as_ref() {
                same.push(place);
            }
        }
        self.free_elsewhere(first, asks, same, by).await
    }

    /// Those of the locks that a majority without the `first` server would grant.
    async fn free_elsewhere(&self, first: usize, asks: &[Ask], places: Vec<usize>, by: Deadline) -> Vec<usize> {
        if places.is_empty() {
            return places;
        }
        let by = by.counted_from(Moment::now());
        let keys: Arc<[_]> =
            places.iter().filter_map(|place| asks.get(*place)).map(|ask| Arc::clone(&ask.key)).collect();
        let looking = each(self.members.iter().filter(|member| member.number != first), |member| {
            // A task: that a server is silent is noticed also when nobody waits for it any more.
            let looking = tokio::spawn(look(member, Arc::clone(&keys), by));
            async move { looking.await.unwrap_or_else(|_| Err(StoreError::no_answer())) }
        });
        let vote = |votes: &mut Votes<(), ()>, number, is_free| {
            if is_free { votes.yes.push((number, ())) } else { votes.no.push((number, ())) }
        };
        let looked = self.decide(keys.len(), looking, vote, Votes::owned);
        let Ok((found, _)) = timeout(self.patience, looked).await else { return Vec::new() };
        let free = places.into_iter().zip(found).filter(|(_, votes)| votes.owned() == Verdict::Yes);
        free.map(|(place, _)| place).collect()
    }
}

fn owner(answers: &[Result<Answer, StoreError>], place: usize) -> Option<&Token> {
    match answers.get(place) {
        Some(Ok(Answer::Busy(busy))) => Some(&busy.owner),
        _ => None,
    }
}

async fn look<S: Node>(member: Arc<Member<S>>, keys: Arc<[Arc<str>]>, by: Deadline) -> Answers<bool> {
    let looked = member.node.are_free(&keys, by).await;
    // A look that is refused says nothing about the server.
    if looked.as_ref().is_err_and(|error| error.retry == Retry::Never) {
        return looked;
    }
    member.note(by, looked)
}
