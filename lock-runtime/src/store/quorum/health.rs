//! [`HealthCheck`]: which servers answer, and which of them may vote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::member::Member;
use super::votes::{Votes, majority};
use super::{Quorum, start_on};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::store::StoreError;
use crate::store::voter::{Eligibility, Voter};

/// How often all servers are probed while some fail.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long, at least, to wait for the last servers when a majority has answered. When the majority took longer, the last
/// servers get as long as the majority took.
const LAST_SERVERS_WAIT: Duration = Duration::from_millis(200);
/// The pause before servers are probed again when too few may vote: another manager may just be marking all of them as new.
const PROBE_AGAIN_AFTER: Duration = Duration::from_millis(50);
const TRIES: usize = 4;

/// When the servers were probed last.
#[derive(Debug, Default)]
pub(super) struct HealthCheck(Mutex<Option<Moment>>);

impl HealthCheck {
    fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if is_due {
            *last = Some(Moment::now());
        }
        is_due
    }
}

impl<S: Voter> Quorum<S> {
    pub(super) fn majority(&self) -> usize {
        majority(self.members.len())
    }

    /// Connects to a majority, and to the others in the background.
    pub(crate) async fn connect(&self, deadline: Deadline) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let found = self.probe_all(deadline.counted_from(Moment::now())).await;
            let mut votes: Votes<(), ()> = self.votes();
            for (number, eligibility) in &found {
                match eligibility {
                    Ok(_) => votes.yes.push((*number, ())),
                    Err(error) => votes.failed.push((*number, error.clone())),
                }
            }
            for member in &*self.members {
                if votes.lacks(member.number) {
                    let silence = || member.node.unanswered("", deadline.span());
                    votes.failed.push((member.number, member.failure().unwrap_or_else(silence)));
                }
            }
            if let Some((one, other)) = self.one_named_twice() {
                let problem = format!("{one} and {other} are the same server, which would have two votes");
                return Err(StoreError::never(BackendError::new(problem)));
            }
            if votes.yes.len() < self.majority() {
                return Err(self.too_few(&votes));
            }
            let voters =
                found.iter().filter(|(_, eligibility)| eligibility.as_ref().is_ok_and(|found| found.vote().is_ok()));
            if voters.count() >= self.majority() {
                return Ok(());
            }
            sleep(PROBE_AGAIN_AFTER).await;
        }
        Ok(())
    }

    /// Two names of the same server.
    fn one_named_twice(&self) -> Option<(&str, &str)> {
        let mut known: BTreeMap<String, &str> = BTreeMap::new();
        self.members.iter().find_map(|member| {
            let name = member.node.name();
            known.insert(member.node.identity()?, name).map(|before| (before, name))
        })
    }

    /// Probes all servers now and then while some fail, in the background.
    pub(super) fn probe_failed_servers(&self) {
        if self.members.iter().any(|member| member.failure().is_some()) && self.health.is_due() {
            let members = Arc::clone(&self.members);
            tokio::spawn(async move { probe_members(&members, Deadline::after(INTERVAL * 4)).await });
        }
    }

    pub(super) async fn probe_all(&self, deadline: Deadline) -> Vec<(usize, Result<Eligibility, StoreError>)> {
        probe_members(&self.members, deadline).await
    }
}

/// Probes all servers. Returns when a majority has answered and the others had a moment more.
async fn probe_members<S: Voter>(
    members: &Arc<[Arc<Member<S>>]>,
    deadline: Deadline,
) -> Vec<(usize, Result<Eligibility, StoreError>)> {
    let mut looking = start_on(members.iter(), |member| {
        // A task: it connects even when nobody waits for it any more.
        let looking = tokio::spawn(async move {
            let found = member.node.probe(deadline).await;
            // What a server says of its vote is noted below, when it is known whether all of them are new.
            if found.is_err() { member.note(deadline, found) } else { found }
        });
        async move { looking.await.unwrap_or_else(|_| Err(StoreError::no_answer())) }
    });
    let mut found = Vec::new();
    let (mut reached, mut last) = (0, LAST_SERVERS_WAIT);
    loop {
        let limit = if reached >= majority(members.len()) { last } else { deadline.remaining() };
        match timeout(limit, looking.next()).await {
            Ok(Some((number, eligibility))) => {
                reached += usize::from(eligibility.is_ok());
                if reached == majority(members.len()) {
                    last = LAST_SERVERS_WAIT.max(deadline.start().elapsed());
                }
                found.push((number, eligibility));
            }
            Ok(None) => break,
            Err(_) => {
                let members = Arc::clone(members);
                tokio::spawn(async move {
                    while let Some(found) = looking.next().await {
                        note_vote(&members, &found, deadline);
                    }
                });
                break;
            }
        }
    }
    mark_eligible(members, &mut found, deadline.counted_from(Moment::now())).await;
    for found in &found {
        note_vote(members, found, deadline);
    }
    found
}

/// Notes what a probe has found: whether the server answers, and whether it may vote.
fn note_vote<S: Voter>(
    members: &[Arc<Member<S>>],
    (number, found): &(usize, Result<Eligibility, StoreError>),
    deadline: Deadline,
) {
    if let Some(member) = members.get(*number)
        && let Ok(eligibility) = member.note(deadline, found.clone())
    {
        let _ = member.note(deadline, eligibility.vote());
    }
}

/// Whether a server is to be marked as being in service, when all servers are new or not (rule Q4).
fn is_to_be_marked(eligibility: Eligibility, are_new: bool) -> bool {
    mutant!(RestartedIsMarked => return true);
    match eligibility {
        Eligibility::Eligible { .. } => true,
        Eligibility::Unmarked(_) => are_new,
        Eligibility::InService | Eligibility::Restarted(_) => false,
    }
}

/// Marks servers as being in service: all of them when all are new, otherwise those that are eligible.
async fn mark_eligible<S: Voter>(
    members: &Arc<[Arc<Member<S>>]>,
    found: &mut [(usize, Result<Eligibility, StoreError>)],
    deadline: Deadline,
) {
    let is_reached = found.len() == members.len() && found.iter().all(|(_, eligibility)| eligibility.is_ok());
    let is_new = |eligibility: &Eligibility| {
        matches!(eligibility, Eligibility::Eligible { is_marked: false } | Eligibility::Unmarked(_))
    };
    let are_new = is_reached && found.iter().all(|(_, eligibility)| eligibility.as_ref().is_ok_and(is_new));
    let marking = found.iter_mut().filter_map(|(number, eligibility)| {
        let member = members.get(*number)?;
        is_to_be_marked(*eligibility.as_ref().ok()?, are_new).then_some((member, eligibility))
    });
    join_all(marking.map(|(member, eligibility)| async move {
        if let Err(error) = member.node.mark_in_service(deadline).await {
            *eligibility = Err(error);
            return;
        }
        *eligibility = member.node.probe(deadline.counted_from(Moment::now())).await;
    }))
    .await;
}
