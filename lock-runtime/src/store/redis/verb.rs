//! [`Verb`]: what asks, releases and renewals have in common. One command carries several of them, and a refusal is explained.

use futures_util::future::{join_all, join3};

use super::RedisStore;
use crate::clock::Deadline;
use crate::share::Share;
use crate::store::{Answers, Reach, Retry, StoreError, each, exactly_one};
use crate::token::Token;

/// Which command of its verb carries an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Alone,
    Shared,
    /// The release of a lock that then rests, shared or not.
    Resting,
}

impl Kind {
    pub(super) fn of_share(share: Option<Share>) -> Self {
        if share.is_some() { Self::Shared } else { Self::Alone }
    }
}

/// An item of a verb: an ask, a release or a renewal.
pub(super) trait Verb: Clone + Sync {
    type Answer: Send;

    /// Sends the items to one server, in as few commands as possible. All are of one kind.
    fn send(
        store: &RedisStore,
        items: &[Self],
        deadline: Deadline,
    ) -> impl Future<Output = Answers<Self::Answer>> + Send;

    fn key(&self) -> &str;

    /// How the lease shares the lock: shared leases have their own scripts.
    fn share(&self) -> Option<Share>;

    fn is_shared(&self) -> bool {
        self.share().is_some()
    }

    fn kind(&self) -> Kind {
        Kind::of_share(self.share())
    }

    /// The token to release even if the server refuses the verb. `None` if it may be in use.
    fn token_to_release(&self) -> Option<&Token> {
        None
    }

    /// Whether to name the missing rights for this error.
    fn is_explained(error: &StoreError) -> bool {
        error.is_denied()
    }
}

impl RedisStore {
    /// Runs a verb: on one server all items together, in a cluster each item alone.
    pub(super) async fn run_verb<V: Verb>(&self, items: &[V], deadline: Deadline) -> Answers<V::Answer> {
        if items.len() > 1 && self.servers.are_many() {
            // All keys of a script must be in one hash slot, and two locks hardly ever share a slot.
            return Ok(Box::pin(one_by_one(items, |item| self.run_together(item, deadline))).await);
        }
        let kind = items.first().map(V::kind);
        if items.iter().any(|item| Some(item.kind()) != kind) {
            return Box::pin(self.run_apart(items, deadline)).await;
        }
        self.run_together(items, deadline).await
    }

    /// Runs a verb for the items of each kind.
    async fn run_apart<V: Verb>(&self, items: &[V], deadline: Deadline) -> Answers<V::Answer> {
        let run = async |kind| {
            let items: Vec<V> = items.iter().filter(|item| item.kind() == kind).cloned().collect();
            let answers = if items.is_empty() { Ok(Vec::new()) } else { self.run_together(&items, deadline).await };
            each(answers, items.len()).into_iter()
        };
        let (mut alone, mut shared, mut resting) = join3(run(Kind::Alone), run(Kind::Shared), run(Kind::Resting)).await;
        let answer = |item: &V| match item.kind() {
            Kind::Alone => alone.next(),
            Kind::Shared => shared.next(),
            Kind::Resting => resting.next(),
        };
        Ok(items.iter().filter_map(answer).collect())
    }

    /// Runs a verb on one server, and explains refusals. If the server refuses the command, each item gets a command of its own: a single
    /// lock's name that the user has no right to makes the server refuse the whole command.
    pub(super) async fn run_together<V: Verb>(&self, items: &[V], deadline: Deadline) -> Answers<V::Answer> {
        let mut answers = V::send(self, items, deadline).await;
        if items.len() > 1 && answers.as_ref().is_err_and(may_be_of_one) {
            answers = Ok(Box::pin(one_by_one(items, |item| V::send(self, item, deadline.anew()))).await);
        }
        self.explained(items, answers, deadline).await
    }

    /// The answers, with refusals explained.
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

/// Whether one of several items may be the reason for this refusal. A missing connection says nothing about them.
fn may_be_of_one(error: &StoreError) -> bool {
    mutant!(RefusedTogether => return false);
    error.retry == Retry::Never && error.reach != Reach::Unsent
}

/// Calls a verb for each item alone, all at the same time.
pub(super) async fn one_by_one<'a, I, T, F: Future<Output = Answers<T>>>(
    items: &'a [I],
    call: impl Fn(&'a [I]) -> F,
) -> Vec<Result<T, StoreError>> {
    join_all(items.chunks(1).map(call)).await.into_iter().map(exactly_one).collect()
}
