//! [`LockGuard`].

use std::fmt;
use std::time::Duration;

use crate::local::{Hold, HoldHandle};
use crate::{FencingToken, LockError};

/// A lock that is held, until this is released or dropped or its deadline passes.
///
/// Dropping it never blocks: it frees the lock for waiters of the same process at once, and for others in the
/// background, also when the runtime it was made on is gone.
#[must_use = "dropping a guard gives the lock back at once; bind it to a name for as long as the lock is needed"]
pub struct LockGuard {
    handle: HoldHandle,
    /// `None` for a hold that is borrowed from an outer body.
    hold: Option<Hold>,
}

impl LockGuard {
    pub(crate) fn owning(hold: Hold) -> Self {
        Self { handle: hold.handle().clone(), hold: Some(hold) }
    }

    pub(crate) fn borrowing(handle: HoldHandle) -> Self {
        Self { handle, hold: None }
    }

    pub(crate) fn handle(&self) -> &HoldHandle {
        &self.handle
    }

    /// Whether the hold is borrowed from an outer body of the same task.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.hold.is_none()
    }

    /// The lock's name in Redis.
    #[must_use]
    pub fn key(&self) -> &str {
        self.handle.key()
    }

    /// The fencing token, when one was asked for with [`fenced(true)`](crate::LockRequest::fenced).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.handle.fencing_token()
    }

    /// Whether the lock is still held, as far as this process knows. Local, no I/O.
    ///
    /// A `true` is old as soon as it is returned: a process that is paused right after it can't know. Where that
    /// matters, pass the [fencing token](Self::fencing_token) along with the write.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.handle.is_valid()
    }

    /// The time to the deadline that Redis has confirmed so far; zero when the hold was lost. Local, no I/O.
    ///
    /// It starts small (a grant is a claim of at most 2.5 s) and grows to the full lease within milliseconds,
    /// when the lease is confirmed in the background.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.handle.remaining()
    }

    /// Resolves when the hold is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        self.handle.lost().await;
    }

    /// Moves the deadline to `lease` from now, less what clocks may drift (1 % + 2 ms). It never shortens the hold.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) when the hold is lost, [`Backend`](LockError::Backend) when Redis did not confirm
    /// (the old deadline stands), [`InvalidSetting`](LockError::InvalidSetting) for a lease out of bounds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: at worst Redis keeps the lock for longer than this process uses it.
    pub async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        self.handle.extend(lease).await
    }

    /// Gives the lock back and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) when it had been lost before, [`Backend`](LockError::Backend) when Redis did not
    /// answer, or refused. The release is then repeated in the background, at least once a second, until it succeeds or the
    /// lease is over. A lock that is free, and could only not be passed on because something else is at the key of its queue,
    /// is `Ok`, and an event of level `WARN`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lock is given back in the background.
    pub async fn release(self) -> Result<(), LockError> {
        match self.hold {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
