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
            let mut found = probe(&self.members, deadline.counted_from(Moment::now())).await;
            for member in self.members.iter().filter(|member| found.lacks(member.number)).collect::<Vec<_>>() {
                let silence = || member.node.unanswered("", deadline.span());
                found.failed.push((member.number, member.failure().unwrap_or_else(silence)));
            }
            if let Some((one, other)) = self.one_named_twice() {
                let problem = format!("{one} and {other} are the same server, which would have two votes");
                return Err(StoreError::never(BackendError::new(problem)));
            }
            if found.yes.len() < self.majority() {
                return Err(self.too_few(&found));
            }
            if found.yes.iter().filter(|(_, eligibility)| eligibility.vote().is_ok()).count() >= self.majority() {
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
            tokio::spawn(async move { probe(&members, Deadline::after(INTERVAL * 4)).await });
        }
    }
}

/// What the servers that answer say of their votes.
type Found = Votes<Eligibility, ()>;

/// Probes all servers, and marks those that are to be marked. Returns when a majority has answered and the others had a moment more.
pub(super) async fn probe<S: Voter>(members: &[Arc<Member<S>>], deadline: Deadline) -> Found {
    let mut looking = start_on(members, |member| {
        // A task: it connects even when nobody waits for it any more.
        let looking = tokio::spawn(async move {
            let found = member.node.probe(deadline).await;
            // A server without a vote fails by its answer to the next ask. By then it may be marked.
            if matches!(found, Ok(Eligibility::InService) | Err(_)) { member.note(deadline, found) } else { found }
        });
        async move { looking.await.unwrap_or_else(|_| Err(StoreError::no_answer())) }
    });
    let mut found = Found::new(members.len());
    let mut last = LAST_SERVERS_WAIT;
    loop {
        let limit = if found.yes.len() >= found.majority() { last } else { deadline.remaining() };
        let Ok(Some((number, eligibility))) = timeout(limit, looking.next()).await else { break };
        match eligibility {
            Ok(eligibility) => found.yes.push((number, eligibility)),
            Err(error) => found.failed.push((number, error)),
        }
        if found.yes.len() == found.majority() {
            last = LAST_SERVERS_WAIT.max(deadline.start().elapsed());
        }
    }
    mark_eligible(members, &mut found, deadline.counted_from(Moment::now())).await;
    found
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
async fn mark_eligible<S: Voter>(members: &[Arc<Member<S>>], found: &mut Found, deadline: Deadline) {
    let is_new = |(_, eligibility): &(usize, Eligibility)| {
        matches!(eligibility, Eligibility::Eligible { is_marked: false } | Eligibility::Unmarked(_))
    };
    let are_new = found.yes.len() == members.len() && found.yes.iter().all(is_new);
    let to_mark = found.yes.iter_mut().filter(|(_, eligibility)| is_to_be_marked(*eligibility, are_new));
    let marking = to_mark.filter_map(|(number, eligibility)| Some((members.get(*number)?, eligibility)));
    join_all(marking.map(|(member, eligibility)| async move {
        // What fails here is tried again by the next probe.
        if member.node.mark_in_service(deadline).await.is_ok()
            && let Ok(marked) = member.note(deadline, member.node.probe(deadline.counted_from(Moment::now())).await)
        {
            *eligibility = marked;
        }
    }))
    .await;
}
