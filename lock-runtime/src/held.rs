//! [`Held`]: a held lock around a body.

use futures_util::future::{BoxFuture, Either, FutureExt as _, ready};

use crate::guard::Locked;
use crate::local::{Protected, Watch};
use crate::observe;
use crate::scope::Frame;
use crate::turns::Turn;
use crate::{FencingToken, LockError, LockGuard};

/// A held lock around a body.
#[derive(Debug)]
pub struct Held {
    pub(crate) guard: LockGuard,
    /// Whether the body is stopped when its lock is lost.
    is_stopped: bool,
    /// Keeps out the joined calls that entered the same outer hold.
    _turn: Option<Turn>,
}

impl Held {
    pub(crate) fn new(guard: LockGuard, is_stopped: bool, turn: Option<Turn>) -> Self {
        Self { guard, is_stopped, _turn: turn }
    }

    /// Runs `body` under the hold that `entered` waits for.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
    pub(crate) fn run_under<F: Future>(
        entered: BoxFuture<'static, Result<Self, LockError>>,
        body: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> {
        async move {
            let held = entered.await?;
            // The future of `protect`, and with it `body`, is dropped at the end of this statement.
            let outcome = held.protect(body).await;
            held.finish(outcome).await
        }
    }

    /// The guard that `guard = NAME` binds.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// The fencing token of a request with `fenced(true)`.
    ///
    /// # Panics
    ///
    /// Never in an expansion: `fenced = NAME` both asks for the token and reads it.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the expansion that reads the token has asked for it")]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token().expect("asked for with `fenced(true)`")
    }

    /// The fencing tokens of a request for several keys with `fenced(true)`, in the order of the keys.
    #[must_use]
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.guard.fencing_tokens()
    }

    /// Runs `body`, and checks the deadline before each of its polls. The returned future drops `body` when it is dropped itself: drop it
    /// before the lock is released.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] when the hold was lost, and the body was dropped for that reason.
    pub fn protect<F: Future>(&self, body: F) -> impl Future<Output = Result<F::Output, LockError>> {
        Protected::new(self.watch(), &self.guard.span, self.frame().around(body))
    }

    /// Like the next two, not part of the generic fns, which each user's crate compiles again.
    fn watch(&self) -> Watch<'_> {
        // There is no await between the start of a new hold and its body. Of several keys, the first may have been held for long.
        let is_new = !self.guard.is_borrowed() && self.guard.others().next().is_none();
        Watch::new(self.guard.first.handle(), self.guard.others().map(Locked::handle), self.is_stopped, is_new)
    }

    fn frame(&self) -> Frame {
        let frame = |lock: &Locked, others| Frame::new(lock.handle().clone(), lock.is_borrowed(), others);
        frame(&self.guard.first, self.guard.others().map(|lock| frame(lock, Box::default())).collect())
    }

    fn check(&self, completed: bool) -> Result<(), LockError> {
        let lost = self.guard.handles().find(|handle| !handle.is_valid());
        lost.map_or(Ok(()), |handle| Err(handle.lost_error(completed)))
    }

    /// Runs `body` on this thread, to its end.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] when the hold was lost before.
    pub fn run<T>(&self, body: impl FnOnce() -> T) -> Result<T, LockError> {
        self.check(false)?;
        let _inside = self.guard.span.enter();
        Ok(self.frame().run(body))
    }

    /// Releases the lock and returns the outcome of the body. The release begins at once, and the future waits for its answer.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] when the hold did not last until now.
    pub fn finish<T>(mut self, outcome: Result<T, LockError>) -> impl Future<Output = Result<T, LockError>> {
        match outcome {
            Ok(value) => Either::Left(self.release().map(|released| released.map(|()| value))),
            Err(error) => {
                self.guard.span.end(Some(&error));
                Either::Right(ready(Err(error)))
            }
        }
    }

    /// Releases the lock after its body has run to its end. The work was done under the lock, so only a loss is an error.
    pub(crate) fn release(mut self) -> impl Future<Output = Result<(), LockError>> {
        let releasing = if self.guard.is_borrowed() {
            // A borrowed hold continues.
            let ended = self.check(true);
            self.guard.span.end(ended.as_ref().err());
            Either::Left(ready(ended))
        } else {
            self.guard.begin_release()
        };
        releasing.map(|released| match released {
            Err(error) if !error.is_lost() => {
                observe::unreleased(&error);
                Ok(())
            }
            released => released,
        })
    }
}
