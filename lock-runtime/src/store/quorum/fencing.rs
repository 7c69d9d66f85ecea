//! Fencing tokens of a majority (rule Q3).

use std::sync::Arc;

use super::votes::Votes;
use super::{Quorum, detach, start_on};
use crate::clock::{Deadline, Moment};
use crate::store::StoreError;
use crate::store::voter::Voter;
use crate::token::Token;

impl<S: Voter> Quorum<S> {
    /// Rule Q3: the largest number that a majority drew counts, once a majority will draw no smaller one.
    pub(super) async fn draw_from_majority(
        &self,
        key: &Arc<str>,
        token: &Token,
        count: u32,
        deadline: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        let (key, token) = (Arc::clone(key), token.clone());
        let drawing = start_on(self.members.iter(), |member| {
            let (key, token) = (Arc::clone(&key), token.clone());
            async move { member.note_one(deadline, member.node.draw(&key, &token, None, count, deadline).await) }
        });
        let vote = |votes: &mut Votes<u64, ()>, number, answer: Option<u64>| match answer {
            Some(first) => votes.yes.push((number, first)),
            None => votes.no.push((number, ())),
        };
        let mut drawn = self.votes();
        detach(self.decide(std::slice::from_mut(&mut drawn), drawing, vote).await);
        if !self.is_owned(&drawn)? {
            return Ok(None);
        }
        let first = drawn.yes.iter().map(|(_, first)| *first).max().unwrap_or_default();
        let have_it = drawn.yes.iter().filter(|(_, own)| *own == first).map(|(number, _)| *number).collect();
        mutant!(SmallerDrawsLeft => return Ok(Some(first)));
        let last = first + u64::from(count) - 1;
        let is_owned = self.raise(&key, &token, last, have_it, deadline.counted_from(Moment::now())).await?;
        Ok(is_owned.then_some(first))
    }

    /// Makes sure that a majority will draw only fencing tokens greater than `last`. The servers that `have_it` drew `last`
    /// themselves, with the same draw. `false` when the token does not own the lock.
    async fn raise(
        &self,
        key: &Arc<str>,
        token: &Token,
        last: u64,
        have_it: Vec<usize>,
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let others = self.members.iter().filter(|member| !have_it.contains(&member.number));
        let raising = start_on(others, |member| {
            let (key, token) = (Arc::clone(key), token.clone());
            async move { member.note_one(deadline, member.node.raise(&key, &token, last, deadline).await) }
        });
        let mut raised: Votes<(), ()> = self.votes();
        raised.yes = have_it.into_iter().map(|number| (number, ())).collect();
        let vote = |votes: &mut Votes<(), ()>, number, is_owned| {
            let side = if is_owned { &mut votes.yes } else { &mut votes.no };
            side.push((number, ()));
        };
        detach(self.decide(std::slice::from_mut(&mut raised), raising, vote).await);
        self.is_owned(&raised)
    }
}
