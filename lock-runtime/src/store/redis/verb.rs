//! [`Verb`]: what asks, releases and renewals have in common. One command carries several of them, and a refusal is explained.

use futures_util::future::{join, join_all};

use super::RedisStore;
use crate::clock::Deadline;
use crate::share::Share;
use crate::store::{Answers, StoreError, each, exactly_one};

/// An item of a verb: an ask, a release or a renewal.
pub(super) trait Verb: Clone + Sync {
    type Answer: Send;

    /// Sends the items to one server, in as few commands as possible. They are all shared, or all not.
    fn send(
        store: &RedisStore,
        items: &[Self],
        deadline: Deadline,
    ) -> impl Future<Output = Answers<Self::Answer>> + Send;

    fn key(&self) -> &str;

    /// How the lease shares the lock: other scripts are for such leases.
    fn share(&self) -> Option<Share>;

    fn is_shared(&self) -> bool {
        self.share().is_some()
    }

    /// The token whose lease is released when the server refuses the verb; empty where the lease stays.
    fn token_to_release(&self) -> &str;

    /// Whether the missing rights are named for this error.
    fn is_explained(error: &StoreError) -> bool {
        error.is_denied()
    }
}

impl RedisStore {
    /// Runs a verb: all items together on one server, each item by itself in a cluster.
    pub(super) async fn run_verb<V: Verb>(&self, items: &[V], deadline: Deadline) -> Answers<V::Answer> {
        if items.len() > 1 && self.servers.are_many() {
            // A script may use the keys of one hash slot only, and two locks hardly ever share a slot.
            return Ok(Box::pin(one_by_one(items, |item| self.run_together(item, deadline))).await);
        }
        if items.iter().any(V::is_shared) && !items.iter().all(V::is_shared) {
            return Box::pin(self.run_apart(items, deadline)).await;
        }
        self.run_together(items, deadline).await
    }

    /// Runs a verb for the shared leases among the items, and for the others.
    async fn run_apart<V: Verb>(&self, items: &[V], deadline: Deadline) -> Answers<V::Answer> {
        let (shared, others): (Vec<V>, Vec<V>) = items.iter().cloned().partition(V::is_shared);
        let run = async |items: &[V]| each(self.run_together(items, deadline).await, items.len()).into_iter();
        let (mut shared, mut others) = join(run(&shared), run(&others)).await;
        Ok(items.iter().filter_map(|item| if item.is_shared() { shared.next() } else { others.next() }).collect())
    }

    /// Runs a verb on one server, and explains what the server refuses.
    pub(super) async fn run_together<V: Verb>(&self, items: &[V], deadline: Deadline) -> Answers<V::Answer> {
        let answers = V::send(self, items, deadline).await;
        self.explained(items, answers, deadline).await
    }

    /// The answers, with what the server refused explained.
    pub(super) async fn explained<V: Verb>(
        &self,
        items: &[V],
        answers: Answers<V::Answer>,
        deadline: Deadline,
    ) -> Answers<V::Answer> {
        let is_to_explain = match &answers {
            Ok(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(V::is_explained)),
            Err(error) => V::is_explained(error),
        };
        if is_to_explain { Box::pin(self.explain(items, answers, deadline)).await } else { answers }
    }
}

/// Calls a verb for each item by itself, and all at the same time.
pub(super) async fn one_by_one<'a, I, T, F: Future<Output = Answers<T>>>(
    items: &'a [I],
    call: impl Fn(&'a [I]) -> F,
) -> Vec<Result<T, StoreError>> {
    join_all(items.chunks(1).map(call)).await.into_iter().map(exactly_one).collect()
}
