//! [`Gather`]: releases that several tasks wait for, sent as one command.
//!
//! Databases call this group commit. To start a script costs the server more than to release a lock. So while other commands
//! are on their way, a release waits until every task that can run now has run, and goes together with the releases of those
//! tasks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::RedisStore;
use super::failure::CallError;
use crate::clock::{Deadline, Moment};
use crate::store::{Release, Released, Store, StoreError};

/// Releases per command: a longer script would delay the server's other clients.
const RELEASES_PER_SCRIPT: usize = 64;

type Answer = oneshot::Sender<Result<Released, StoreError>>;

/// Releases that are not sent yet, one batch per runtime: a runtime that is blocked, or not polled, delays only its own tasks.
#[derive(Default)]
pub(super) struct Gather {
    pending: Mutex<HashMap<runtime::Id, Vec<(Release, Answer)>>>,
}

impl Gather {
    /// Adds a release to the batch of a runtime. Returns whether the batch is new: then the caller has to send it.
    fn add(&self, runtime: runtime::Id, release: Release, answer: Answer) -> bool {
        let mut pending = self.locked();
        let of_runtime = pending.entry(runtime).or_default();
        of_runtime.push((release, answer));
        of_runtime.len() == 1
    }

    fn take(&self, runtime: runtime::Id) -> Vec<(Release, Answer)> {
        self.locked().remove(&runtime).unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<runtime::Id, Vec<(Release, Answer)>>> {
        // Nothing that can panic runs under this lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases a lock together with others.
pub(super) async fn release(store: &RedisStore, release: &Release, deadline: Deadline) -> Result<Released, StoreError> {
    let (sender, answer) = oneshot::channel();
    let runtime = Handle::current();
    if store.gather.add(runtime.id(), release.clone(), sender) {
        let unsent = PendingBatch { store: store.clone(), runtime: runtime.id(), is_sent: false };
        runtime.spawn(unsent.send(deadline));
    }
    match timeout_at(deadline.on_timer(), answer).await {
        Ok(Ok(released)) => released,
        // The runtime that has to send the batch is blocked, or has ended.
        _ => Err(CallError::Silent(deadline.span()).into()),
    }
}

/// The batch of a runtime, until it is sent. It repeats nothing: the keeper repeats every release without an answer.
struct PendingBatch {
    store: RedisStore,
    runtime: runtime::Id,
    is_sent: bool,
}

impl PendingBatch {
    async fn send(mut self, deadline: Deadline) {
        tokio::task::yield_now().await;
        let deadline = deadline.counted_from(Moment::now());
        let store = self.store.clone();
        let mut pending = store.gather.take(self.runtime);
        self.is_sent = true;
        let mut batches = Vec::new();
        while !pending.is_empty() {
            batches.push(pending.split_off(pending.len().saturating_sub(RELEASES_PER_SCRIPT)));
        }
        join_all(batches.into_iter().map(|batch| send_batch(&store, batch, deadline))).await;
    }
}

impl Drop for PendingBatch {
    /// A runtime that ends drops its tasks. Then the batch is dropped, too, and every caller that still waits gets an error.
    fn drop(&mut self) {
        if !self.is_sent {
            drop(self.store.gather.take(self.runtime));
        }
    }
}

async fn send_batch(store: &RedisStore, batch: Vec<(Release, Answer)>, deadline: Deadline) {
    let (releases, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let outcome = store.release(&releases, deadline).await;
    let mut outcomes = outcome.map(Vec::into_iter);
    for answer in answers {
        let outcome = match &mut outcomes {
            Ok(outcomes) => outcomes.next().unwrap_or_else(|| Err(StoreError::no_answer())),
            Err(error) => Err(error.clone()),
        };
        // When nobody waits for the answer any more, the keeper repeats the release.
        let _ = answer.send(outcome);
    }
}
