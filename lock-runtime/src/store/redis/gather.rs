//! [`Gather`]: releases that several tasks wait for, sent as one command.
//!
//! Starting a script costs the server more than giving back a lock. So while other commands are on their way, a release
//! waits until every task that can run now has run, and goes together with theirs (what databases call group commit).

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

/// Releases per command: a longer script would hold up the server's other clients.
const RELEASES_PER_SCRIPT: usize = 64;

type Answer = oneshot::Sender<Result<Released, StoreError>>;

/// Releases that the next command takes along, of each runtime by itself: one that is blocked, or not polled, has only its
/// own tasks wait.
#[derive(Default)]
pub(super) struct Gather {
    pending: Mutex<HashMap<runtime::Id, Vec<(Release, Answer)>>>,
}

impl Gather {
    /// Adds a release; says whether it is the first, which somebody has to send.
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

/// Gives a lock back together with others.
pub(super) async fn release(store: &RedisStore, release: &Release, deadline: Deadline) -> Result<Released, StoreError> {
    let (sender, answer) = oneshot::channel();
    let runtime = Handle::current();
    if store.gather.add(runtime.id(), release.clone(), sender) {
        let unsent = PendingBatch { store: store.clone(), runtime: runtime.id(), is_sent: false };
        runtime.spawn(unsent.send(deadline));
    }
    match timeout_at(deadline.on_timer(), answer).await {
        Ok(Ok(released)) => released,
        // The runtime that was to send it stands still, or ends.
        _ => Err(CallError::Silent(deadline.span()).into()),
    }
}

/// What is pending on a runtime, until it is sent.
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
    /// A runtime that ends drops its tasks: those who wait for this one have to hear it.
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
        // Whoever no longer waits has its release repeated by the keeper.
        let _ = answer.send(outcome);
    }
}
