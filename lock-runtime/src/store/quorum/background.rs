//! [`Background`]: what a quorum goes on with after the caller has its answer.
//!
//! A release goes on until every server has answered or failed. The keeper repeats a release that failed at a majority. Where it
//! failed at fewer servers, their part of the lease ends by itself, and the other servers can grant the lock.
//!
//! A refused ask is withdrawn from the servers that granted it, or still may. The keeper can't repeat these withdrawals: it knows
//! only the verdict of a majority, and for the keeper a refused ask is settled. The claim that stands then stands on a minority. So
//! it is withdrawn from each of those servers by itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::member::Member;
use super::{Pending, start_on};
use crate::clock::Deadline;
use crate::store::voter::Voter;
use crate::store::{Answer, Answers, Reach, Release, Retry, StoreError};
use crate::timing::CLAIM;

/// How long one server has to answer a withdrawal, and the pause before the withdrawal is repeated.
const WITHDRAW_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Tasks that the shutdown waits for.
pub(super) struct Background<S> {
    members: Arc<[Arc<Member<S>>]>,
    tasks: TaskTracker,
}

impl<S> Clone for Background<S> {
    fn clone(&self) -> Self {
        Self { members: Arc::clone(&self.members), tasks: self.tasks.clone() }
    }
}

impl<S: Voter> Background<S> {
    pub(super) fn new(members: &Arc<[Arc<Member<S>>]>) -> Self {
        Self { members: Arc::clone(members), tasks: TaskTracker::new() }
    }

    /// Starts a verb on all servers, each in a task of its own: the verb goes on when its caller gives up.
    pub(super) fn start<T, F>(&self, verb: impl Fn(Arc<Member<S>>) -> F) -> Pending<Result<T, StoreError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        start_on(self.members.iter(), |member| {
            // Boxed: the compiler makes all of tokio's code about a task again for each kind of task.
            let verb: BoxFuture<'static, Result<T, StoreError>> = Box::pin(verb(member));
            let task = self.tasks.spawn(verb);
            // A task fails only with its runtime.
            async move { task.await.unwrap_or_else(|_| Err(StoreError::no_answer())) }
        })
    }

    /// Withdraws an ask from one server, until the server has answered or the claim has ended by itself.
    pub(super) fn withdraw(&self, number: usize, release: Release) {
        let Some(member) = self.members.get(number).map(Arc::clone) else { return };
        self.tasks.spawn(async move {
            let expires = Deadline::after(CLAIM + WITHDRAW_AGAIN_AFTER);
            loop {
                let deadline = Deadline::after(WITHDRAW_AGAIN_AFTER);
                match member.node.release(std::slice::from_ref(&release), deadline).await {
                    Err(error) if error.retry == Retry::Later && !expires.has_passed() => {
                        sleep(WITHDRAW_AGAIN_AFTER).await;
                    }
                    _ => return,
                }
            }
        });
    }

    /// Withdraws asks from those servers of the `rest` that grant one, or fail and still may.
    pub(super) fn withdraw_late(&self, mut rest: Pending<Answers<Answer>>, refused: Vec<Release>) {
        let background = self.clone();
        self.tasks.spawn(async move {
            while let Some((number, answers)) = rest.next().await {
                if may_stand(&answers) {
                    for release in &refused {
                        background.withdraw(number, release.clone());
                    }
                }
            }
        });
    }

    /// Resolves when nothing is under way.
    pub(super) async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Whether a server may have granted any of the asks.
fn may_stand(answers: &Answers<Answer>) -> bool {
    match answers {
        Ok(answers) => !answers.iter().all(|answer| matches!(answer, Ok(Answer::Busy(_)))),
        Err(error) => error.reach != Reach::Unsent,
    }
}
