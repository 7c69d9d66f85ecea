//! Claims that travel together: a pipeline of plain `SET … NX GET PX` for each server.
//!
//! Each key succeeds or fails by itself, because each has a command of its own. A late `SET` is bounded by its claim, as that of a
//! single task is (rule 2).
//!
//! Why no script: per key, a script costs the server twice as much as a plain command that arrives in the same write.
//! docs/performance.md has the numbers (W2).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value};

use super::super::answer::read_claimed;
use super::super::failure::CallError;
use super::super::link::Link;
use super::super::{RedisStore, claim_command};
use super::{Batch, Entry, Item, by_link, longest};
use crate::clock::Moment;
use crate::store::{Answer, Ask, Events, StoreError};

/// A claim that was made longer ago than this may have been withdrawn before it is sent.
const OLD: Duration = Duration::from_millis(10);

impl Item for Ask {
    fn list(batch: &mut Batch) -> &mut Vec<Entry<Self>> {
        &mut batch.claims
    }

    fn on_unsent(&self, events: &dyn Events, sent: Moment) {
        events.on_unsent(self, sent);
    }
}

pub(super) async fn send(store: &RedisStore, claims: Vec<Entry<Ask>>, now: Moment) {
    let groups = by_link(store, claims).into_iter();
    join_all(groups.map(|(link, claims)| send_to(store, link, claims, now))).await;
}

/// Sends claims to one server.
async fn send_to(store: &RedisStore, link: Option<Arc<Link>>, mut claims: Vec<Entry<Ask>>, now: Moment) {
    let Some(link) = link else { return send_alone(store, claims).await };
    let deadline = longest(&claims, now);
    let sent = {
        let mut commands = |_: &Link| pipeline(store, &mut claims);
        link.call_many(&mut commands, deadline).await
    };
    let mut called = match sent {
        Ok(called) => called,
        Err(_) if store.servers.are_many() => return send_alone(store, claims).await,
        Err(error) => {
            let error = store.servers.name_failure(error);
            return claims.into_iter().for_each(|claim| claim.answer(store, Err(error.clone())));
        }
    };
    let replies = called.take_values();
    let read = |(claim, reply): (&Entry<Ask>, Value)| {
        let reply = reply.extract_error().map_err(|error| store.servers.name_failure(CallError::from(error)))?;
        read_claimed(reply, &claim.item, called.sent, called.link.drift)
    };
    let answers: Vec<_> = claims.iter().zip(replies).map(read).collect();
    let mut refused = Vec::new();
    for (claim, answer) in claims.into_iter().zip(answers) {
        if answer.is_err() && store.servers.are_many() {
            refused.push(claim);
        } else {
            claim.answer(store, answer);
        }
    }
    send_alone(store, refused).await;
}

/// The commands for the claims that are still wanted. The others are dropped.
fn pipeline(store: &RedisStore, claims: &mut Vec<Entry<Ask>>) -> Pipeline {
    let now = Moment::now();
    claims.retain(|claim| claim.is_wanted(store, now));
    let mut commands = Pipeline::with_capacity(claims.len());
    for claim in claims {
        commands.add_command(claim_command(&claim.item));
    }
    commands
}

/// Sends each claim by itself: in a cluster, its command has to look for its master.
async fn send_alone(store: &RedisStore, claims: Vec<Entry<Ask>>) {
    let now = Moment::now();
    let wanted = claims.into_iter().filter(|claim| claim.is_wanted(store, now));
    join_all(wanted.map(|claim| async move {
        let answer = store.claim_alone(&claim.item, claim.deadline.counted_from(now)).await;
        claim.answer(store, answer);
    }))
    .await;
}

impl Entry<Ask> {
    /// Whether a task waits for the claim. A task that has not been polled for a while may have lost its turn, and its ask may
    /// have been withdrawn before it was sent (rule L7).
    fn is_wanted(&self, store: &RedisStore, now: Moment) -> bool {
        mutant!(DroppedClaimSent => return true);
        if self.answer.is_closed() {
            return false;
        }
        let is_old = now.since(self.deadline.start()) > OLD;
        !is_old || store.gather.events().is_none_or(|events| events.leave_to_user(&self.item))
    }

    /// Passes the answer to the task that waits for it.
    fn answer(self, store: &RedisStore, answer: Result<Answer, StoreError>) {
        let Err(unread) = self.answer.send(answer) else { return };
        mutant!(DroppedClaimSent => return);
        // The task is gone. Its withdrawal may have been sent before the claim, so it is sent again (rule 1).
        if matches!(unread, Ok(Answer::Granted(_)))
            && let Some(events) = store.gather.events()
        {
            events.on_unread_grant(&self.item);
        }
    }
}
