//! [`Census`]: which servers answer, and which of them may vote.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::{sleep, timeout};

use super::member::Member;
use super::votes::{Votes, majority};
use super::{Pending, Quorum, go_on};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::StoreError;
use crate::store::voter::{Standing, Voter};

/// While servers fail, all are looked at so often.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long at least to wait for the last servers once a majority has answered; as long as the majority took, if that was
/// longer.
const LAST: Duration = Duration::from_millis(200);
/// When too few may vote, another manager may just be marking them all as new.
const SHORTLY: Duration = Duration::from_millis(50);
const TRIES: usize = 4;

/// When the servers were looked at last.
#[derive(Debug, Default)]
pub(super) struct Census(Mutex<Option<Moment>>);

impl Census {
    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(crate) async fn connect(&self, by: Deadline) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let found = self.take_census(by.counted_from(Moment::now())).await;
            let mut votes: Votes<(), ()> = self.votes();
            for (number, standing) in &found {
                match standing {
                    Ok(_) => votes.yes.push((*number, ())),
                    Err(error) => votes.failed(*number, error.clone()),
                }
            }
            for member in &*self.members {
                if votes.lacks(member.number) {
                    let silence = || member.node.unanswered(by.span());
                    votes.failed(member.number, member.failure().unwrap_or_else(silence));
                }
            }
            if let Some((one, other)) = self.one_named_twice() {
                let problem = format!("{one} and {other} are the same server, which would have two votes");
                return Err(StoreError::never(BackendError::new(problem)));
            }
            if votes.yes.len() < self.majority() {
                return Err(self.too_few(&votes));
            }
            let voters = found.iter().filter(|(_, standing)| standing.as_ref().is_ok_and(|found| found.vote().is_ok()));
            if voters.count() >= self.majority() {
                return Ok(());
            }
            sleep(SHORTLY).await;
        }
        Ok(())
    }

    /// Two names of one server.
    fn one_named_twice(&self) -> Option<(&str, &str)> {
        let mut known: BTreeMap<String, &str> = BTreeMap::new();
        self.members.iter().find_map(|member| {
            let name = member.node.name();
            known.insert(member.node.identity()?, name).map(|before| (before, name))
        })
    }

    /// Looks at servers that fail now and then, in the background.
    pub(super) fn nurse(&self) {
        if self.members.iter().any(|member| member.failure().is_some()) && self.census.is_due() {
            let members = Arc::clone(&self.members);
            tokio::spawn(async move { look_at(&members, Deadline::after(INTERVAL * 4)).await });
        }
    }

    pub(super) async fn take_census(&self, by: Deadline) -> Vec<(usize, Result<Standing, StoreError>)> {
        look_at(&self.members, by).await
    }
}

/// Looks at all servers; returns once a majority has answered, and the others had a moment for it.
async fn look_at<S: Voter>(
    members: &Arc<[Arc<Member<S>>]>,
    by: Deadline,
) -> Vec<(usize, Result<Standing, StoreError>)> {
    let look = |member: &Arc<Member<S>>| {
        let member = Arc::clone(member);
        let number = member.number;
        // A task: it connects also when nobody waits for it any more.
        let looking = tokio::spawn(async move {
            let standing = member.note(by, member.node.look(by).await)?;
            let _ = member.note(by, standing.vote());
            Ok(standing)
        });
        async move { (number, looking.await.unwrap_or_else(|_| Err(StoreError::no_answer()))) }
    };
    let mut looking: Pending<Result<Standing, StoreError>> =
        members.iter().map(look).map(|looking| -> BoxFuture<'static, _> { Box::pin(looking) }).collect();
    let mut found = Vec::new();
    let (mut reached, mut last) = (0, LAST);
    loop {
        let limit = if reached >= majority(members.len()) { last } else { by.remaining() };
        match timeout(limit, looking.next()).await {
            Ok(Some((number, standing))) => {
                reached += usize::from(standing.is_ok());
                if reached == majority(members.len()) {
                    last = LAST.max(by.start().elapsed());
                }
                found.push((number, standing));
            }
            Ok(None) => break,
            Err(_) => {
                go_on(looking);
                break;
            }
        }
    }
    settle(members, &mut found, by.counted_from(Moment::now())).await;
    found
}

/// Marks servers as being in service: all of them when they are all new, else those that are of age.
async fn settle<S: Voter>(
    members: &Arc<[Arc<Member<S>>]>,
    found: &mut [(usize, Result<Standing, StoreError>)],
    by: Deadline,
) {
    let is_reached = found.len() == members.len() && found.iter().all(|(_, standing)| standing.is_ok());
    let is_new = |standing: &Standing| matches!(standing, Standing::OfAge { is_marked: false } | Standing::Unmarked(_));
    let are_new = is_reached && found.iter().all(|(_, standing)| standing.as_ref().is_ok_and(is_new));
    let is_to_be_marked = |standing: Standing| match standing {
        Standing::OfAge { .. } => true,
        Standing::Unmarked(_) => are_new,
        Standing::InService | Standing::Restarted(_) => false,
    };
    let marking = found.iter_mut().filter_map(|(number, standing)| {
        let member = members.get(*number)?;
        is_to_be_marked(*standing.as_ref().ok()?).then_some((member, standing))
    });
    join_all(marking.map(|(member, standing)| async move {
        if let Err(error) = member.node.enrol(by).await {
            *standing = Err(error);
            return;
        }
        *standing = member.node.look(by.counted_from(Moment::now())).await;
        if let Ok(standing) = standing {
            let _ = member.note(by, standing.vote());
        }
    }))
    .await;
}
