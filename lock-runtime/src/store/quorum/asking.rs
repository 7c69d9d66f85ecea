//! How a quorum is asked for locks: all servers at once (rule Q2).

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout_at;

use super::member::Member;
use super::votes::{Verdict, Votes};
use super::{Pending, Quorum, detach};
use crate::BackendError;
use crate::clock::Deadline;
use crate::store::voter::Voter;
use crate::store::{Answer, Answers, Ask, Busy, Grant, Reach, StoreError};

type Polled = Votes<Grant, Busy>;

fn vote(votes: &mut Polled, number: usize, answer: Answer) {
    match answer {
        Answer::Granted(grant) => votes.yes.push((number, grant)),
        Answer::Busy(busy) => votes.no.push((number, busy)),
        // A quorum's lock is not taken from its holder.
        Answer::Late | Answer::Replaced => {
            votes.late += 1;
            let problem = BackendError::new("the ask came too late");
            votes.failed.push((number, StoreError { out_of_time: true, ..StoreError::later(problem) }));
        }
    }
}

impl<S: Voter> Quorum<S> {
    /// Counts the answers to asks. What a majority grants is granted. What is refused, and some servers may have granted, has to be
    /// withdrawn.
    pub(super) async fn resolve(&self, asks: &[Ask], pending: Pending<Answers<Answer>>) -> Answers<Answer> {
        let (all, rest) = self.count(asks.len(), pending).await;
        let answers: Vec<_> =
            all.iter().zip(asks).map(|((votes, verdict), ask)| self.answer(votes, *verdict, ask)).collect();
        self.probe_failed_servers();
        let granted = answers.iter().zip(asks).filter(|(answer, _)| matches!(answer, Ok(Answer::Granted(_))));
        let granted: Vec<_> = granted.map(|(_, ask)| ask.withdrawal()).collect();
        if granted.is_empty() {
            detach(rest);
        } else {
            self.grants.on_grant(&self.members, rest, granted);
        }
        Ok(answers)
    }

    fn answer(&self, votes: &Polled, verdict: Verdict, ask: &Ask) -> Result<Answer, StoreError> {
        match (verdict, votes.no.iter().min_by_key(|(number, _)| *number)) {
            (Verdict::Yes, _) => {
                // When some servers granted long before the others, most of the claim may be over: the lease is confirmed before use.
                let until = votes.until(|grant| grant.until);
                let until = if until.remaining() < ask.claim / 2 { Deadline::after(Duration::ZERO) } else { until };
                Ok(Answer::Granted(Grant { until, contended: false, fence: None }))
            }
            (Verdict::No, Some((_, busy))) => {
                let unsent = votes.failed.iter().filter(|(_, error)| error.reach == Reach::Unsent).count();
                let stands = votes.no.len() + unsent < self.members.len();
                // The clock of one server says nothing of the others.
                Ok(Answer::Busy(Busy { anchor: None, stands, ..busy.clone() }))
            }
            // No server is at fault.
            _ if votes.late > 0 && votes.yes.len() + votes.no.len() + votes.late >= votes.majority() => {
                Ok(Answer::Late)
            }
            _ => Err(StoreError { reach: votes.reach(), ..self.too_few(votes) }),
        }
    }

    /// Collects the answers for `count` items until each item is decided, or only slow servers could still change it.
    async fn count(
        &self,
        count: usize,
        mut pending: Pending<Answers<Answer>>,
    ) -> (Vec<(Polled, Verdict)>, Pending<Answers<Answer>>) {
        let mut all: Vec<Polled> = (0..count).map(|_| self.votes()).collect();
        let usual = Deadline::after(self.patience()).on_timer();
        let mut is_usual = true;
        loop {
            // How many servers may soon answer.
            let hopeful = |votes: &Polled| {
                let may_answer = |member: &Member<S>| votes.lacks(member.number) && member.failure().is_none();
                if is_usual { self.members.iter().filter(|member| may_answer(member)).count() } else { 0 }
            };
            let verdicts: Vec<_> = all.iter().map(|votes| votes.granted(hopeful(votes))).collect();
            if !verdicts.contains(&Verdict::Open) || pending.is_empty() {
                // Others may have failed in the same instant. Their errors say whether anything was sent to them.
                while let Some(Some((number, answers))) = pending.next().now_or_never() {
                    super::record(&mut all, number, answers, &vote);
                }
                return (all.into_iter().zip(verdicts).collect(), pending);
            }
            let answer = if is_usual { timeout_at(usual, pending.next()).await } else { Ok(pending.next().await) };
            match answer {
                Ok(Some((number, answers))) => super::record(&mut all, number, answers, &vote),
                Ok(None) => {}
                Err(_) => is_usual = false,
            }
        }
    }
}
