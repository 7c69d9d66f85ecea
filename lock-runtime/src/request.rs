//! [`LockRequest`]: what is asked for, and the three ways to ask.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::options::LockOptions;
use crate::{LockError, LockGuard, OnLost};

/// One lock being asked for; made by [`LockManager::lock`](crate::LockManager::lock).
///
/// Nothing happens before [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or [`run`](Self::run) is
/// awaited. A mistake in the key or the settings is reported there.
#[derive(Debug)]
#[must_use = "a request locks nothing until `acquire`, `try_acquire` or `run` is awaited"]
pub struct LockRequest {
    engine: Arc<Engine>,
    options: LockOptions,
}

impl LockRequest {
    pub(crate) fn new(engine: Arc<Engine>, options: LockOptions) -> Self {
        Self { engine, options }
    }

    /// How long to wait for the lock; zero tries once. By default the manager's (2 s).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.timeout(timeout);
        self
    }

    /// The lease: for how long a crashed holder keeps others out. By default the manager's (30 s). From 10 ms to one year.
    ///
    /// The lease says nothing about how long a healthy holder may take: it is renewed until the lock is released, unless
    /// [`renew(false)`](Self::renew) is set.
    pub fn expire(mut self, expire: Duration) -> Self {
        self.options = self.options.expire(expire);
        self
    }

    /// Whether the lease is renewed for as long as the lock is held. By default it is.
    ///
    /// Without renewal the hold ends with its lease: a body under it is stopped then, and its caller gets
    /// [`LockError::Lost`](crate::LockError::Lost).
    pub fn renew(mut self, renew: bool) -> Self {
        self.options = self.options.renew(renew);
        self
    }

    /// Whether a fencing token is drawn with the lock; see [`LockGuard::fencing_token`].
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.options = self.options.fenced(fenced);
        self
    }

    /// What happens to a body given to [`run`](Self::run) whose lock is lost under it.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.options = self.options.on_lost(on_lost);
        self
    }

    /// Waits for the lock and returns the guard that holds it.
    ///
    /// # Errors
    ///
    /// [`Timeout`](LockError::Timeout) when it stayed busy, [`Backend`](LockError::Backend) when Redis could not be
    /// asked until then, [`InvalidKey`](LockError::InvalidKey) or [`InvalidSetting`](LockError::InvalidSetting)
    /// before anything is sent, [`TooManyWaiters`](LockError::TooManyWaiters), [`AlreadyHeld`](LockError::AlreadyHeld) inside a body that holds this very lock,
    /// [`ShutDown`](LockError::ShutDown), [`Forked`](LockError::Forked) in a child of the process that made the manager,
    /// [`TooFewReplicas`](LockError::TooFewReplicas) with
    /// [`Builder::min_replicas`](crate::Builder::min_replicas). All of them at the latest 100 ms after the timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future gives up the place in the queue and withdraws what was asked of Redis.
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> {
        let entry = self.options.entry(Some(self.engine), false);
        async move {
            match entry {
                Ok(ref entry) => entry.acquire().await,
                Err(error) => Err(error),
            }
        }
    }

    /// Tries once and returns `None` when somebody holds the lock.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without `Timeout`. At the latest after 100 ms.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        match self.timeout(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the lock, runs `body` under it, and gives it back.
    ///
    /// This is what `#[cache_lock]` expands to. The lock's deadline is looked at before every poll of `body`. When
    /// the running task holds this very lock already, inside another `run`, `body` enters at once and borrows the
    /// outer hold's deadline and fencing token. Joined, selected and buffered futures are the same task; spawned ones are
    /// not, also when an executor that is driven inside of the outer body polls them.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire) (except `AlreadyHeld`), and [`Lost`](LockError::Lost) when the lock did not
    /// last until the end of `body`. A release that Redis does not answer is not an error: the work was done under
    /// the lock, and the release is repeated in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and then gives the lock back in the background.
    pub fn run<F: Future>(self, body: F) -> impl Future<Output = Result<F::Output, LockError>> {
        let entry = self.options.entry(Some(self.engine), true);
        async move {
            let held = match entry {
                Ok(ref entry) => entry.enter().await?,
                Err(error) => return Err(error),
            };
            // The future of `protect`, and with it `body`, is dropped at the end of this statement.
            let outcome = held.protect(body).await;
            held.finish(outcome).await
        }
    }
}
