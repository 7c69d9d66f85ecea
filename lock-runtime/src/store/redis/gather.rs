//! [`Gather`]: claims and releases of several tasks, sent together.
//!
//! Databases call this group commit. A command of its own costs both sides more than the work on one lock: the client makes,
//! sends and awaits it, and the server starts a script for it. So while other commands are on their way, a claim or a release
//! waits until every task that can run now has run, and goes together with what those tasks send.
//!
//! Claims are a pipeline of plain `SET … NX GET PX` (`claims.rs`), and releases are one script (`releases.rs`). In a cluster both
//! are a pipeline for each master, because a script may use the keys of one slot only.
//!
//! Each item has its own answer. Rule 1 (what was sent and not answered is withdrawn): the claim of a task that is gone is taken
//! out of the batch while the batch is not sent. Then there is nothing to withdraw.

use std::sync::{Arc, OnceLock, Weak};

use tokio::runtime;
use tokio::sync::oneshot;

use super::RedisStore;
use super::link::Link;
use super::servers::Servers;
use super::verb::Verb;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::store::{Ask, Events, Release, StoreError};

mod claims;
mod place;
mod releases;

pub(super) use place::send;

/// Items per command or per write: more would delay the server's other clients, and the tasks whose answers come first.
const MOST_TOGETHER: usize = 64;

/// What is not sent yet, one batch per runtime: a runtime that is blocked, or not polled, delays only its own tasks.
#[derive(Default)]
pub(super) struct Gather {
    pending: Mutex<Pending>,
    events: OnceLock<Weak<dyn Events>>,
}

#[derive(Default)]
struct Pending {
    /// The number of the last item.
    last: u64,
    batches: Vec<(runtime::Id, Batch)>,
}

pub(super) struct Batch {
    opened: Moment,
    claims: Vec<Entry<Ask>>,
    releases: Vec<Entry<Release>>,
}

/// An item of a batch, and who waits for its answer.
pub(super) struct Entry<I: Item> {
    number: u64,
    item: I,
    deadline: Deadline,
    answer: oneshot::Sender<Result<I::Answer, StoreError>>,
}

/// A claim or a release.
pub(super) trait Item: Verb + Send + 'static {
    fn list(batch: &mut Batch) -> &mut Vec<Entry<Self>>;

    /// The task is gone, and the item was certainly not sent. At the instant `_sent` it could have been sent for the last time.
    fn on_unsent(&self, _events: &dyn Events, _sent: Moment) {}
}

impl Gather {
    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        // The engine attaches itself once.
        let _ = self.events.set(events);
    }

    fn events(&self) -> Option<Arc<dyn Events>> {
        self.events.get().and_then(Weak::upgrade)
    }

    /// Adds an item to the batch of a runtime. Returns the item's number, and the instant at which the batch was opened.
    fn add<I: Item>(
        &self,
        runtime: runtime::Id,
        (item, deadline): (I, Deadline),
        answer: oneshot::Sender<Result<I::Answer, StoreError>>,
    ) -> (u64, Option<Moment>) {
        let Pending { last, batches } = &mut *self.pending.lock();
        *last += 1;
        let entry = Entry { number: *last, item, deadline, answer };
        if let Some((_, batch)) = batches.iter_mut().find(|(id, _)| *id == runtime) {
            I::list(batch).push(entry);
            return (*last, Some(batch.opened));
        }
        let mut batch = Batch { opened: deadline.start(), claims: Vec::new(), releases: Vec::new() };
        I::list(&mut batch).push(entry);
        batches.push((runtime, batch));
        (*last, None)
    }

    fn take(&self, runtime: runtime::Id) -> Option<Batch> {
        let Pending { batches, .. } = &mut *self.pending.lock();
        let place = batches.iter().position(|(id, _)| *id == runtime)?;
        Some(batches.swap_remove(place).1)
    }

    /// Takes an item out of its batch. `None` when the batch was taken to be sent.
    fn remove<I: Item>(&self, runtime: runtime::Id, number: u64) -> Option<Entry<I>> {
        let Pending { batches, .. } = &mut *self.pending.lock();
        let (_, batch) = batches.iter_mut().find(|(id, _)| *id == runtime)?;
        let entries = I::list(batch);
        let place = entries.iter().position(|entry| entry.number == number)?;
        Some(entries.swap_remove(place))
    }

    fn has<I: Item>(&self, runtime: runtime::Id, number: u64) -> bool {
        let Pending { batches, .. } = &mut *self.pending.lock();
        let batch = batches.iter_mut().find(|(id, _)| *id == runtime);
        batch.is_some_and(|(_, batch)| I::list(batch).iter().any(|entry| entry.number == number))
    }
}

/// The time that a command for all entries may take.
fn longest<I: Item>(entries: &[Entry<I>], now: Moment) -> Deadline {
    let most = entries.iter().map(|entry| entry.deadline.remaining_at(now)).max();
    Deadline::new(now, most.unwrap_or_default())
}

/// Entries that go over one link. `None` for those whose way is not clear.
type Group<I> = (Option<Arc<Link>>, Vec<Entry<I>>);

/// Sorts entries by the link that their commands take, at most [`MOST_TOGETHER`] to a group.
fn by_link<I: Item>(store: &RedisStore, mut entries: Vec<Entry<I>>) -> Vec<Group<I>> {
    let mut groups: Vec<Group<I>> = Vec::new();
    if let Servers::One(link) = &store.servers {
        while !entries.is_empty() {
            let rest = entries.split_off(entries.len().min(MOST_TOGETHER));
            groups.push((Some(Arc::clone(link)), std::mem::replace(&mut entries, rest)));
        }
        return groups;
    }
    for entry in entries {
        let link = store.servers.direct(entry.item.key());
        let is_same = |group: &&mut Group<I>| {
            group.0.as_ref().map(Arc::as_ptr) == link.as_ref().map(Arc::as_ptr) && group.1.len() < MOST_TOGETHER
        };
        match groups.iter_mut().rev().find(is_same) {
            Some((_, group)) => group.push(entry),
            None => groups.push((link, vec![entry])),
        }
    }
    groups
}
