//! [`Gather`]: releases that several tasks wait for, sent as one command.
//!
//! Starting a script costs the server more than giving back a lock. So while other commands are on their way, a release
//! waits until every task that can run now has run, and goes together with theirs (what databases call group commit).

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::RedisStore;
use super::failure::CallError;
use crate::clock::Deadline;
use crate::store::{Release, Released, Store, StoreError};

/// Releases per command: a longer script would hold up the server's other clients.
const MOST: usize = 64;

type Answer = oneshot::Sender<Result<Released, StoreError>>;

/// Releases that the next command takes along.
#[derive(Default)]
pub(super) struct Gather {
    pending: Mutex<Vec<(Release, Answer)>>,
}

impl Gather {
    fn locked(&self) -> MutexGuard<'_, Vec<(Release, Answer)>> {
        // Nothing that can panic runs under this lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a lock back together with others.
pub(super) async fn release(store: &RedisStore, release: &Release, by: Deadline) -> Result<Released, StoreError> {
    let (sender, answer) = oneshot::channel();
    let is_first = {
        let mut pending = store.gather.locked();
        pending.push((release.clone(), sender));
        pending.len() == 1
    };
    if is_first {
        let unsent = Unsent { store: store.clone(), is_sent: false };
        tokio::spawn(async move { unsent.send(by).await });
    }
    match timeout_at(by.on_timer(), answer).await {
        Ok(Ok(released)) => released,
        // The runtime that was to send it stands still, or is gone.
        _ => Err(CallError::Silent(by.span()).into()),
    }
}

/// What is pending, until it is sent.
struct Unsent {
    store: RedisStore,
    is_sent: bool,
}

impl Unsent {
    async fn send(mut self, by: Deadline) {
        tokio::task::yield_now().await;
        let store = self.store.clone();
        let mut pending = std::mem::take(&mut *store.gather.locked());
        self.is_sent = true;
        let mut batches = Vec::new();
        while !pending.is_empty() {
            batches.push(pending.split_off(pending.len().saturating_sub(MOST)));
        }
        join_all(batches.into_iter().map(|batch| send_batch(&store, batch, by))).await;
    }
}

impl Drop for Unsent {
    /// A runtime that ends drops its tasks: those who wait for this one have to hear it, and the next is the first again.
    fn drop(&mut self) {
        if !self.is_sent {
            drop(std::mem::take(&mut *self.store.gather.locked()));
        }
    }
}

async fn send_batch(store: &RedisStore, batch: Vec<(Release, Answer)>, by: Deadline) {
    let (releases, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let outcome = store.release(&releases, by).await;
    let mut outcomes = outcome.map(Vec::into_iter);
    for answer in answers {
        let outcome = match &mut outcomes {
            Ok(outcomes) => outcomes.next().unwrap_or_else(|| Err(StoreError::no_answer())),
            Err(error) => Err(error.clone()),
        };
        // Whoever no longer waits has its release repeated by the keeper.
        let _ = answer.send(outcome);
    }
}
