//! [`Member`]: what a quorum knows about one of its servers: whether it answers, and may vote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::votes::Votes;
use super::{Quorum, start_on};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::observe;
use crate::store::voter::{Eligibility, Voter};
use crate::store::{Answers, StoreError};

/// How often all servers are probed while some fail.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long, at least, to wait for the last servers after a majority has answered. If the majority took longer, they get as long as it
/// took.
const LAST_SERVERS_WAIT: Duration = Duration::from_millis(200);
/// The pause before probing again when too few servers may vote: another manager may just be marking all of them as new.
const PROBE_AGAIN_AFTER: Duration = Duration::from_millis(50);
const TRIES: usize = 4;

/// A server of the quorum.
#[derive(Debug)]
pub(super) struct Member<S> {
    pub(super) node: S,
    /// The server's index in the order that all managers share.
    pub(super) number: usize,
    /// The last failure, if the server has not answered since.
    failed: Mutex<Option<StoreError>>,
}

/// A timeout says nothing about the server when the verb had less time than this, or than two round trips.
const CUT_SHORT: Duration = Duration::from_millis(50);

impl<S: Voter> Member<S> {
    pub(super) fn new(number: usize, node: S) -> Arc<Self> {
        Arc::new(Self { node, number, failed: Mutex::default() })
    }

    /// Notes the outcome of a verb with this deadline.
    pub(super) fn note<T>(&self, deadline: Deadline, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let error = outcome.as_ref().err().cloned();
        if error.as_ref().is_some_and(|error| error.out_of_time)
            && deadline.span() < CUT_SHORT.max(self.node.round_trip() * 2)
        {
            return outcome;
        }
        let is_news = std::mem::replace(&mut *self.failed.lock(), error.clone()).is_none();
        // The other servers may be enough, and then no caller learns of this failure.
        if let Some(error) = error.filter(|_| is_news) {
            observe::member_failed(self.node.name(), &error.problem);
        }
        outcome
    }

    /// Like [`note`](Self::note), for a verb with one item.
    pub(super) fn note_one<T>(&self, deadline: Deadline, outcome: Result<T, StoreError>) -> Answers<T> {
        self.note(deadline, outcome).map(|answer| vec![Ok(answer)])
    }

    pub(super) fn failure(&self) -> Option<StoreError> {
        self.failed.lock().clone()
    }
}

impl<S: Voter> Quorum<S> {
    /// Connects to a majority, and to the others in the background.
    pub(crate) async fn connect(&self, deadline: Deadline) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let mut found = probe(&self.members, deadline.counted_from(Moment::now())).await;
            for member in self.members.iter().filter(|member| found.lacks(member.number)).collect::<Vec<_>>() {
                let silence = || member.node.unanswered("", deadline.span());
                found.failed.push((member.number, member.failure().unwrap_or_else(silence)));
            }
            let mut known = BTreeMap::new();
            for member in &*self.members {
                let other = member.node.name();
                if let Some(one) = member.node.identity().and_then(|identity| known.insert(identity, other)) {
                    let problem = format!("{one} and {other} are the same server, which would have two votes");
                    return Err(StoreError::never(BackendError::new(problem)));
                }
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

    /// Probes all servers in the background while some fail, at most once per interval.
    pub(super) fn probe_failed_servers(&self) {
        let mut last = self.probed.lock();
        if last.is_none_or(|last| last.elapsed() >= INTERVAL)
            && self.members.iter().any(|member| member.failure().is_some())
        {
            *last = Some(Moment::now());
            let members = Arc::clone(&self.members);
            tokio::spawn(async move { probe(&members, Deadline::after(INTERVAL * 4)).await });
        }
    }
}

/// What the servers that answered report about their votes.
type Found = Votes<Eligibility, ()>;

/// Probes all servers, and marks those that are due for it. Returns when a majority has answered and the others had a little more time.
pub(super) async fn probe<S: Voter>(members: &[Arc<Member<S>>], deadline: Deadline) -> Found {
    let mut looking = start_on(members, |member| {
        // A task connects even when no caller waits for it any more.
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
    // Rule Q4: servers are marked as being in service, all of them when all are new, otherwise those that are eligible.
    let deadline = deadline.counted_from(Moment::now());
    let is_new = |(_, eligibility): &(usize, Eligibility)| {
        matches!(eligibility, Eligibility::Eligible { is_marked: false } | Eligibility::Unmarked(_))
    };
    let are_new = found.yes.len() == members.len() && found.yes.iter().all(is_new);
    let is_to_be_marked = |(_, eligibility): &&mut (usize, Eligibility)| {
        let is_eligible = match eligibility {
            Eligibility::Eligible { .. } => true,
            Eligibility::Unmarked(_) => are_new,
            Eligibility::InService | Eligibility::Restarted(_) => false,
        };
        mutant!(RestartedIsMarked => true, else is_eligible)
    };
    let to_mark = found.yes.iter_mut().filter(is_to_be_marked);
    let marking = to_mark.filter_map(|(number, eligibility)| Some((members.get(*number)?, eligibility)));
    join_all(marking.map(|(member, eligibility)| async move {
        // The next probe tries again what fails here.
        if member.node.mark_in_service(deadline).await.is_ok()
            && let Ok(marked) = member.note(deadline, member.node.probe(deadline.counted_from(Moment::now())).await)
        {
            *eligibility = marked;
        }
    }))
    .await;
    found
}
