//! [`Place`]: one task's claim or release in a batch, and how a batch is sent.

use std::time::Duration;

use futures_util::future::join;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::super::RedisStore;
use super::super::failure::CallError;
use super::{Batch, Item, claims, releases};
use crate::clock::{Deadline, Moment};
use crate::store::StoreError;

/// A batch that is older than this is sent by the next task that joins it. The thread that has to send it may be blocked.
const OVERTAKEN_AFTER: Duration = Duration::from_millis(2);
/// A task sends the batch itself when it has waited this long in it.
const UNSENT_FOR: Duration = Duration::from_millis(20);

/// Sends an item together with others. The future waits for its answer.
///
/// It is a block and not an `async fn`, which would hold its arguments twice: this future is a part of every lock's.
pub(in super::super) fn send<'a, I: Item>(
    store: &'a RedisStore,
    item: &'a I,
    deadline: Deadline,
) -> impl Future<Output = Result<I::Answer, StoreError>> + use<'a, I> {
    let mut place = Place::take(store, item, deadline);
    async move {
        let end = place.deadline.on_timer();
        let look = Deadline::new(place.deadline.start(), UNSENT_FOR).on_timer();
        if look < end
            && let Ok(answer) = timeout_at(look, &mut place.answer).await
        {
            return place.end(answer);
        }
        place.send_when_unsent();
        match timeout_at(end, &mut place.answer).await {
            Ok(answer) => place.end(answer),
            Err(_) => Err(place.give_up()),
        }
    }
}

/// Where a task waits for the answer to its item. Dropping it takes the item out of a batch that is not sent.
struct Place<'a, I: Item> {
    store: &'a RedisStore,
    item: &'a I,
    deadline: Deadline,
    runtime: runtime::Id,
    number: u64,
    answer: oneshot::Receiver<Result<I::Answer, StoreError>>,
    is_over: bool,
}

impl<'a, I: Item> Place<'a, I> {
    fn take(store: &'a RedisStore, item: &'a I, deadline: Deadline) -> Self {
        let (sender, answer) = oneshot::channel();
        let handle = Handle::current();
        let runtime = handle.id();
        let (number, opened) = store.gather.add(runtime, (item.clone(), deadline), sender);
        if opened.is_none_or(|opened| deadline.start().since(opened) > OVERTAKEN_AFTER) {
            handle.spawn(Unsent { store: store.clone(), runtime, is_taken: false }.send_after_others());
        }
        Self { store, item, deadline, runtime, number, answer, is_over: false }
    }

    /// Sends the batch in place of the task that had to do it, and has not done it yet.
    fn send_when_unsent(&self) {
        if self.store.gather.has::<I>(self.runtime, self.number) {
            let unsent = Unsent { store: self.store.clone(), runtime: self.runtime, is_taken: false };
            Handle::current().spawn(unsent.send());
        }
    }

    fn end<E>(mut self, answer: Result<Result<I::Answer, StoreError>, E>) -> Result<I::Answer, StoreError> {
        self.is_over = true;
        // The runtime that has to send the batch has ended.
        answer.unwrap_or_else(|_| Err(self.silent(false)))
    }

    /// The error of a task whose time is up.
    fn give_up(mut self) -> StoreError {
        self.is_over = true;
        let is_unsent = self.leave();
        self.silent(is_unsent)
    }

    /// Takes the item out of its batch. Returns whether it was certainly not sent.
    fn leave(&self) -> bool {
        mutant!(DroppedClaimSent => return true);
        self.store.gather.remove::<I>(self.runtime, self.number).is_some()
    }

    fn silent(&self, is_unsent: bool) -> StoreError {
        let silent = CallError::Silent(self.deadline.span());
        self.store.servers.name_failure(if is_unsent { silent.before_sending() } else { silent })
    }
}

impl<I: Item> Drop for Place<'_, I> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.leave()
            && let Some(events) = self.store.gather.events()
        {
            self.item.on_unsent(&*events, self.deadline.start());
        }
    }
}

/// The batch of a runtime, until it is sent. Its link repeats a write once when the connection breaks (`Link::call_many`). After that
/// each task repeats its own item.
struct Unsent {
    store: RedisStore,
    runtime: runtime::Id,
    is_taken: bool,
}

impl Unsent {
    async fn send_after_others(self) {
        tokio::task::yield_now().await;
        self.send().await;
    }

    async fn send(mut self) {
        self.is_taken = true;
        let Some(Batch { claims, releases, .. }) = self.store.gather.take(self.runtime) else { return };
        let (store, now) = (&self.store, Moment::now());
        join(claims::send(store, claims, now), releases::send(store, releases, now)).await;
    }
}

impl Drop for Unsent {
    /// A runtime that ends drops its tasks. Then the batch is dropped, too, and every caller that still waits gets an error.
    fn drop(&mut self) {
        if !self.is_taken {
            drop(self.store.gather.take(self.runtime));
        }
    }
}
