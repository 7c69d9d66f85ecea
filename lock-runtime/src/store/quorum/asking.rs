//! How a quorum is asked for locks: all servers at once, or first the one whose queue counts.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{timeout, timeout_at};

use super::member::Member;
use super::votes::{Verdict, Votes};
use super::{Pending, Quorum, detach, start_on};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::voter::Voter;
use crate::store::{Answer, Answers, Ask, Busy, Grant, Reach, StoreError};
use crate::token::Token;

/// When a minority of servers granted the lock, all are asked again after about this pause: another process may just be
/// withdrawing its ask from the others.
pub(super) const RETRY_PARTIAL_AFTER: Duration = Duration::from_millis(10);

type Polled = Votes<Grant, Busy>;

fn vote(votes: &mut Polled, number: usize, answer: Answer) {
    match answer {
        Answer::Granted(grant) => votes.yes.push((number, grant)),
        Answer::Busy(busy) => votes.no.push((number, busy)),
        // A quorum's lock is not taken from its holder.
        Answer::Late | Answer::Replaced => {
            let problem = BackendError::new("the ask came too late");
            votes
                .failed
                .push((number, StoreError { out_of_time: true, came_too_late: true, ..StoreError::later(problem) }));
        }
    }
}

/// The grant of a majority. When some servers granted long before the last one, their leases may end soon: then the grant is
/// confirmed before use.
fn granted(votes: &Polled, ask: &Ask) -> Answer {
    let until = votes.until(|grant| grant.until);
    let until = if until.remaining() < ask.claim / 2 { Deadline::after(Duration::ZERO) } else { until };
    let contended = votes.yes.iter().any(|(_, grant)| grant.contended);
    Answer::Granted(Grant { until, contended, fence: None })
}

/// The refusal of the first server that refused. It has no anchor: the clock of one server says nothing of the others. And the
/// ask does not pause: its repetitions look at the other servers (Q2).
fn busy(votes: &Polled) -> Option<(usize, Busy)> {
    let (number, busy) = votes.no.iter().min_by_key(|(number, _)| *number)?;
    Some((*number, Busy { anchor: None, pause: Duration::ZERO, ..busy.clone() }))
}

/// The tokens that a majority granted.
fn granted_tokens(answers: &[Result<Answer, StoreError>], asks: &[Ask]) -> Vec<Token> {
    let granted = answers.iter().zip(asks).filter(|(answer, _)| matches!(answer, Ok(Answer::Granted(_))));
    granted.map(|(_, ask)| ask.token.clone()).collect()
}

/// The servers that granted an ask, or failed and may have granted it.
fn may_have_granted(votes: &Polled) -> impl Iterator<Item = usize> {
    let doubtful = votes.failed.iter().filter(|(_, error)| error.reach != Reach::Unsent);
    votes.yes.iter().map(|(number, _)| *number).chain(doubtful.map(|(number, _)| *number))
}

/// Asks servers.
pub(super) fn send_asks<'a, S: Voter>(
    members: impl IntoIterator<Item = &'a Arc<Member<S>>>,
    asks: &[Ask],
    deadline: Deadline,
) -> Pending<Answers<Answer>> {
    let asks: Arc<[Ask]> = asks.into();
    start_on(members, |member| {
        let asks = Arc::clone(&asks);
        async move { member.note(deadline, member.node.ask(&asks, deadline).await) }
    })
}

impl<S: Voter> Quorum<S> {
    /// Takes what a majority grants. Otherwise withdraws the ask from each server that granted it, or still may.
    pub(super) async fn resolve_try(&self, asks: &[Ask], pending: Pending<Answers<Answer>>) -> Answers<Answer> {
        let (all, rest) = self.poll(asks.len(), Vec::new(), pending, Self::granted).await;
        let mut refused = Vec::new();
        let mut answers = Vec::with_capacity(asks.len());
        for ((votes, verdict), ask) in all.iter().zip(asks) {
            answers.push(match (verdict, busy(votes)) {
                (Verdict::Yes, _) => Ok(granted(votes, ask)),
                (Verdict::No, Some((_, busy))) => {
                    for number in may_have_granted(votes) {
                        self.background.withdraw(number, ask.withdrawal());
                    }
                    refused.push(ask.withdrawal());
                    Ok(Answer::Busy(busy))
                }
                _ => Err(self.unpolled_error(votes)),
            });
        }
        self.probe_failed_servers();
        // After an error the caller asks for all locks again, or withdraws all asks.
        if answers.iter().all(Result::is_ok) {
            if refused.is_empty() {
                self.lagging.detach(rest, granted_tokens(&answers, asks));
            } else {
                self.background.withdraw_late(rest, refused);
            }
        }
        Ok(answers)
    }

    /// Takes what a majority grants. Otherwise the ask keeps its place in the queues, unless another process comes first.
    pub(super) async fn resolve_wait(
        &self,
        asks: &[Ask],
        seeds: Vec<(usize, Grant)>,
        pending: Pending<Answers<Answer>>,
    ) -> Answers<Answer> {
        let (all, rest) = self.poll(asks.len(), seeds, pending, Self::granted_or_split).await;
        let outcome = |((votes, verdict), ask): (&(Polled, Verdict), &Ask)| match (verdict, busy(votes)) {
            (Verdict::Yes, _) => Ok(granted(votes, ask)),
            (Verdict::No, Some((refused, busy))) => {
                let frees_in = if votes.yes.is_empty() { busy.frees_in } else { Some(retry_pause()) };
                // Rule Q2: the owner of the first server that answers goes first, and the others withdraw.
                let yields = votes.yes.iter().all(|(number, _)| refused < *number) && !votes.yes.is_empty();
                Ok(Answer::Busy(Busy { frees_in, yields, ..busy }))
            }
            _ => Err(self.unpolled_error(votes)),
        };
        let answers: Vec<_> = all.iter().zip(asks).map(outcome).collect();
        self.probe_failed_servers();
        if answers.iter().all(Result::is_ok) {
            self.lagging.detach(rest, granted_tokens(&answers, asks));
        }
        Ok(answers)
    }

    /// Waits in the queue of one server, the first that answers. When that server grants a lock, the others are asked for it.
    pub(super) async fn queue(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        let (first, mut answers) = self.ask_first_responder(asks, deadline).await?;
        self.probe_failed_servers();
        if let Some(error) = self.down() {
            return Err(error);
        }
        let granted: Vec<usize> =
            (0..asks.len()).filter(|place| matches!(answers.get(*place), Some(Ok(Answer::Granted(_))))).collect();
        let seeds = answers.iter().filter_map(|answer| match answer {
            Ok(Answer::Granted(grant)) => Some((first, grant.clone())),
            _ => None,
        });
        let seeds = seeds.collect();
        let others = self.members.iter().filter(|member| member.number != first);
        self.ask_on(asks, &mut answers, &granted, seeds, others, deadline).await?;
        let stale_minority = self.stale_minority(first, asks, &mut answers, deadline).await;
        if let Some(error) = self.down() {
            return Err(error);
        }
        self.ask_on(asks, &mut answers, &stale_minority, Vec::new(), self.members.iter(), deadline).await?;
        Ok(answers.into_iter().map(|answer| answer.map(without_anchor)).collect())
    }

    /// Asks more servers for some of the locks.
    async fn ask_on<'a>(
        &'a self,
        asks: &[Ask],
        answers: &mut [Result<Answer, StoreError>],
        places: &[usize],
        seeds: Vec<(usize, Grant)>,
        members: impl Iterator<Item = &'a Arc<Member<S>>>,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        if places.is_empty() {
            return Ok(());
        }
        let asks: Vec<Ask> = places.iter().filter_map(|place| asks.get(*place).cloned()).collect();
        let pending = send_asks(members, &asks, deadline.counted_from(Moment::now()));
        for (place, merged) in places.iter().zip(self.resolve_wait(&asks, seeds, pending).await?) {
            if let Some(answer) = answers.get_mut(*place) {
                *answer = merged;
            }
        }
        Ok(())
    }

    /// The answers of the first server that answers, and its number. The next server is asked when a server fails, or takes
    /// longer than servers usually do.
    async fn ask_first_responder(
        &self,
        asks: &[Ask],
        deadline: Deadline,
    ) -> Result<(usize, Vec<Result<Answer, StoreError>>), StoreError> {
        let mut order: Vec<_> = self.members.iter().collect();
        order.sort_by_key(|member| member.is_doubtful());
        let mut order = order.into_iter();
        let mut asked: Option<&Arc<Member<S>>> = None;
        let mut asking: Pending<Answers<Answer>> = FuturesUnordered::new();
        let mut votes: Votes<(), ()> = self.votes();
        loop {
            if let Some(slow) = asked.take() {
                slow.mark_slow();
            }
            let next = order.next();
            if let Some(member) = next {
                asking.extend(send_asks([member], asks, deadline.counted_from(Moment::now())));
            }
            let patience = if next.is_some() { self.patience() } else { deadline.remaining() };
            asked = next;
            match timeout(patience, asking.next()).await {
                Ok(Some((number, Ok(answers)))) => {
                    detach(asking);
                    return Ok((number, answers));
                }
                Ok(Some((number, Err(error)))) => {
                    votes.failed.push((number, error));
                    asked = None;
                }
                Ok(None) if next.is_none() => return Err(self.unanswered_error(votes, deadline)),
                Err(_) if next.is_none() => {
                    // The last servers may have run out of time in the same instant.
                    while let Some(Some((number, Err(error)))) = asking.next().now_or_never() {
                        votes.failed.push((number, error));
                    }
                    return Err(self.unanswered_error(votes, deadline));
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// The error of an ask that no server answered. The servers that have not failed are silent. What is known of a server from
    /// before is no measure: a command that had too little time says nothing about the server, but it failed all the same.
    fn unanswered_error(&self, mut votes: Votes<(), ()>, deadline: Deadline) -> StoreError {
        let reach = votes.reach();
        for member in &*self.members {
            if votes.lacks(member.number) {
                votes.failed.push((member.number, member.node.unanswered("", deadline.span())));
            }
        }
        StoreError { reach, ..self.too_few(&votes) }
    }

    /// The error when too few servers answer, or may vote; `None` when enough do.
    pub(super) fn down(&self) -> Option<StoreError> {
        let mut votes: Votes<(), ()> = self.votes();
        votes.failed = self.members.iter().filter_map(|member| Some((member.number, member.failure()?))).collect();
        (votes.failed.len() > self.members.len() - self.majority()).then(|| self.too_few(&votes))
    }

    /// Collects the answers for `count` items until each item is decided, or only slow servers could still change it.
    async fn poll(
        &self,
        count: usize,
        seeds: Vec<(usize, Grant)>,
        mut pending: Pending<Answers<Answer>>,
        verdict: impl Fn(&Self, &Polled) -> Verdict,
    ) -> (Vec<(Polled, Verdict)>, Pending<Answers<Answer>>) {
        let mut all: Vec<Polled> = (0..count).map(|_| self.votes()).collect();
        for (votes, seed) in all.iter_mut().zip(seeds) {
            votes.yes.push(seed);
        }
        let usual = Deadline::after(self.patience()).on_timer();
        let mut is_usual = true;
        loop {
            let verdicts: Vec<_> = all.iter().map(|votes| verdict(self, votes)).collect();
            if verdicts.iter().all(|verdict| *verdict == Verdict::Unknown) {
                // The last servers may have failed in the same instant. Their errors say whether anything was sent to them.
                while let Some(Some((number, answers))) = pending.next().now_or_never() {
                    super::record(&mut all, number, answers, &vote);
                }
            }
            if !verdicts.contains(&Verdict::Open) || pending.is_empty() {
                return (all.into_iter().zip(verdicts).collect(), pending);
            }
            let answer = if is_usual { timeout_at(usual, pending.next()).await } else { Ok(pending.next().await) };
            match answer {
                Ok(Some((number, answers))) => super::record(&mut all, number, answers, &vote),
                Ok(None) => {}
                Err(_) => {
                    is_usual = false;
                    let is_pending = |member: &&Arc<Member<S>>| all.iter().any(|votes| votes.lacks(member.number));
                    self.members.iter().filter(is_pending).for_each(|member| member.mark_slow());
                }
            }
        }
    }

    /// The error of an ask that too few servers have answered.
    fn unpolled_error(&self, votes: &Polled) -> StoreError {
        StoreError { reach: votes.reach(), ..self.too_few(votes) }
    }

    fn granted(&self, votes: &Polled) -> Verdict {
        votes.granted(self.hopeful(votes))
    }

    /// The same for an ask that keeps its parts. Rule Q2: who goes first is decided by the first server that answers, and who has
    /// parts must know of them. So it is refused only when all servers that may soon answer have answered.
    fn granted_or_split(&self, votes: &Polled) -> Verdict {
        let hopeful = self.hopeful(votes);
        mutant!(SplitDecidedEarly => return votes.granted(hopeful));
        match votes.granted(hopeful) {
            Verdict::No if hopeful > 0 => Verdict::Open,
            verdict => verdict,
        }
    }

    /// How many servers may soon answer.
    fn hopeful(&self, votes: &Polled) -> usize {
        let is_hopeful = |member: &&Arc<Member<S>>| votes.lacks(member.number) && !member.is_doubtful();
        self.members.iter().filter(is_hopeful).count()
    }
}

fn without_anchor(answer: Answer) -> Answer {
    match answer {
        Answer::Busy(busy) => Answer::Busy(Busy { anchor: None, pause: Duration::ZERO, ..busy }),
        answer => answer,
    }
}

/// Between once and twice [`RETRY_PARTIAL_AFTER`], by chance: two processes that collided must not collide again.
fn retry_pause() -> Duration {
    let more = chance() % 1024;
    RETRY_PARTIAL_AFTER + RETRY_PARTIAL_AFTER.mul_f64(f64::from(u32::try_from(more).unwrap_or_default()) / 1024.0)
}

fn chance() -> u64 {
    // In a simulated world the seed decides.
    #[cfg(test)]
    if let Some(chance) = crate::simulation::time::chance() {
        return chance;
    }
    RandomState::new().hash_one(())
}
