//! [`LockError`]: one variant per thing a caller can do about it.

use std::error::Error;
use std::time::Duration;

mod backend;
mod invalid_key;
mod text;

pub use backend::BackendError;
pub use invalid_key::InvalidKey;
pub(crate) use text::within;

/// Why a lock was not obtained, or did not last.
///
/// The text names the lock's key. It never contains a password or an owner token.
///
/// ```
/// use lock_runtime::LockError;
///
/// fn status(error: &LockError) -> u16 {
///     match error {
///         LockError::Timeout { .. } => 409,               // Busy: the user may try again.
///         LockError::Lost { forced: true, .. } => 409,    // Somebody took it, as with `on_busy = "replace"`.
///         LockError::Backend { .. } => 503,               // Redis can't be asked.
///         _ => 500,                                       // `kind` has all of them.
///     }
/// }
/// # assert_eq!(status(&LockError::NotInstalled), 500);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else held the lock for the whole timeout. Try again later, or say that the thing is busy.
    #[non_exhaustive]
    Timeout {
        /// The lock's name in Redis.
        key: String,
        /// How long the caller waited.
        waited: Duration,
        /// The label of the manager that holds the lock (by default its host and process id). `None` when it is not
        /// known.
        holder: Option<String>,
        /// Whether this same process had the lock: a task of it may have waited for itself. Two other reasons: the lock rests, or
        /// readers of this process hold it, a writer waits, and the request is a reader.
        held_here: bool,
        /// When the holder's lease ends unless the holder renews it, or when the rest ends. `None` where that is not known: a hold
        /// of this process may be renewed.
        frees_in: Option<Duration>,
        /// Whether the lock rests: its hold has ended, and others are still kept out for its
        /// [`at_least`](crate::LockRequest::at_least).
        rests: bool,
    },

    /// The waiter limit is reached. The error comes at once, and nothing is left in Redis. Shed the load, or allow more
    /// waiters with [`Builder::max_waiters`](crate::Builder::max_waiters) and
    /// [`max_waiters_per_key`](crate::Builder::max_waiters_per_key).
    #[non_exhaustive]
    TooManyWaiters {
        /// The lock's name in Redis.
        key: String,
        /// The limit that was reached: the limit for all keys, or the limit for one key.
        limit: usize,
    },

    /// The lock was held, and was lost before the work was done: its lease ended, Redis no longer knew it, or the work took
    /// longer than its `max_hold`. Another process may have worked at the same time. Check what was done before you repeat it.
    #[non_exhaustive]
    Lost {
        /// The lock's name in Redis.
        key: String,
        /// Whether the work was done when the loss was found: the body ran to its end, or the guard was released (`true`). `false`: the
        /// body was dropped, or had not begun, or the loss was found before the end, as by [`LockGuard::extend`](crate::LockGuard::extend).
        /// What a body returned that ran to its end is dropped: it was partly unprotected.
        completed: bool,
        /// Whether somebody took the lock away, as far as this process was told: by
        /// [`force_release`](crate::LockManager::force_release), or with [`OnBusy::Replace`](crate::OnBusy::Replace).
        forced: bool,
        /// The longest hold that the request allowed, if the lock was lost because that time was over
        /// ([`LockRequest::max_hold`](crate::LockRequest::max_hold)).
        max_hold: Option<Duration>,
        /// Whether it was a ticket that gives no lock any more, and nothing ran under it here
        /// ([`adopt`](crate::LockManager::adopt), [`release_ticket`](crate::LockManager::release_ticket)).
        ticket: bool,
    },

    /// There is no manager. Call [`LockManager::install`](crate::LockManager::install) at start-up, or run this inside
    /// [`LockManager::scope`](crate::LockManager::scope).
    NotInstalled,

    /// [`LockManager::install`](crate::LockManager::install) was called, but the process has a default manager already.
    AlreadyInstalled,

    /// The value can't name a lock.
    #[non_exhaustive]
    InvalidKey {
        /// The part of the name that was built before the mistake.
        key: String,
        /// What is wrong with it.
        reason: InvalidKey,
    },

    /// A setting is out of its bounds, such as a lease of zero or a malformed URL.
    #[non_exhaustive]
    InvalidSetting {
        /// The setting's name as the user writes it.
        setting: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },

    /// This same task already holds the lock, inside a body that runs under it: waiting for it would never end. Use
    /// `run` (or the attribute), which enters the lock that its task already holds. A reader, or the holder of a permit, can't
    /// get more from inside: ask for the lock alone, or for one of fewer permits, outside of that body.
    #[non_exhaustive]
    AlreadyHeld {
        /// The lock's name in Redis.
        key: String,
        /// Whether the task holds the lock as a reader or with a permit only, and asks for more than that.
        wants_more: bool,
    },

    /// A thread was to wait for the lock, by a fn that is not async, `acquire_blocking` or `run_blocking`. But this thread runs
    /// async tasks, and all of them would stand still; one of them may be the task that holds the lock. Write an async fn, or call it
    /// inside of `tokio::task::spawn_blocking`.
    #[non_exhaustive]
    InAsyncTask {
        /// The lock's name in Redis.
        key: String,
    },

    /// Fewer replicas confirmed the lock in time than [`Builder::min_replicas`](crate::Builder::min_replicas) asks for.
    /// A failover could lose the lock, so the grant does not count, and the lock is released. An extension that too few replicas
    /// confirm changes nothing: the hold keeps its deadline. The request may also have waited behind others that waited for
    /// replicas. Look at the master first, then repair the replica: the runbook says how.
    #[non_exhaustive]
    TooFewReplicas {
        /// The lock's name in Redis.
        key: String,
        /// How many replicas confirmed the lock in time.
        confirmed: u32,
        /// How many replicas must confirm it.
        wanted: u32,
    },

    /// Redis could not be asked, or could not do it. Whether the lock is free is unknown.
    #[non_exhaustive]
    Backend {
        /// The lock's name in Redis.
        key: String,
        /// What went wrong.
        problem: BackendError,
    },

    /// The connection to Redis could not be set up.
    #[non_exhaustive]
    Connect {
        /// The server's address, without credentials.
        server: String,
        /// What went wrong.
        problem: BackendError,
    },

    /// This process is a fork of the process that made the manager. The child would make the same tokens as its parent,
    /// on the same connections. So its copy of the manager does nothing: make a new manager in the child.
    #[non_exhaustive]
    Forked {
        /// The lock's name in Redis.
        key: String,
    },

    /// The manager is shutting down, or has shut down.
    #[non_exhaustive]
    ShutDown {
        /// The lock's name in Redis.
        key: String,
    },
}

/// The cause of what went wrong between this process and the server. The `problem` is not the source as well: its text stands in
/// this error's text, and a chain of errors would print it twice.
impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backend { problem, .. } | Self::Connect { problem, .. } => problem.source(),
            _ => None,
        }
    }
}

impl LockError {
    /// A setting with this name is out of its bounds.
    pub(crate) fn setting(setting: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidSetting { setting, reason: reason.into() }
    }

    /// What a caller can do about this error: one kind for several variants. A `match` on it needs an arm for kinds to come.
    ///
    /// ```
    /// use lock_runtime::{ErrorKind, LockError};
    ///
    /// /// The HTTP status of a handler that could not have its lock.
    /// fn status(error: &LockError) -> u16 {
    ///     match error.kind() {
    ///         ErrorKind::Busy => 409,
    ///         ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::ShutDown => 503,
    ///         _ => 500,
    ///     }
    /// }
    /// # assert_eq!(status(&LockError::NotInstalled), 500);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout { .. } => ErrorKind::Busy,
            Self::TooManyWaiters { .. } => ErrorKind::Overloaded,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::Backend { .. } | Self::Connect { .. } | Self::TooFewReplicas { .. } => ErrorKind::Unavailable,
            Self::ShutDown { .. } => ErrorKind::ShutDown,
            Self::NotInstalled
            | Self::AlreadyInstalled
            | Self::InvalidKey { .. }
            | Self::InvalidSetting { .. }
            | Self::AlreadyHeld { .. }
            | Self::InAsyncTask { .. }
            | Self::Forked { .. } => ErrorKind::Misuse,
        }
    }

    /// The lock's name in Redis, where the error is about one lock.
    ///
    /// ```
    /// use lock_runtime::LockError;
    ///
    /// assert_eq!(LockError::NotInstalled.key(), None);
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Timeout { key, .. }
            | Self::TooManyWaiters { key, .. }
            | Self::Lost { key, .. }
            | Self::InvalidKey { key, .. }
            | Self::AlreadyHeld { key, .. }
            | Self::InAsyncTask { key }
            | Self::TooFewReplicas { key, .. }
            | Self::Backend { key, .. }
            | Self::Forked { key }
            | Self::ShutDown { key } => Some(key),
            Self::NotInstalled | Self::AlreadyInstalled | Self::InvalidSetting { .. } | Self::Connect { .. } => None,
        }
    }

    /// After how much time the lock is free if its holder has crashed, where the store told: the rest of the holder's lease. A holder
    /// that lives may release the lock sooner, or renew its lease. So another try makes sense sooner, too. Of a lock that rests for its
    /// `at_least` it is the time until the next run may begin.
    ///
    /// Over Redis a single try is not told this of a lock that one task holds alone: to read the rest of the lease would be one more
    /// command.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// let one = LockManager::in_memory();
    /// let other = LockManager::builder().in_memory_with(&one)?;
    /// let _guard = one.lock("report", "daily").expire(Duration::from_secs(9)).acquire().await?;
    /// let busy = other.lock("report", "daily").timeout(Duration::from_millis(5)).acquire().await.unwrap_err();
    /// let left = busy.retry_after();
    /// assert!(left.is_some_and(|left| left <= Duration::from_secs(9)));
    /// // For the header `Retry-After`, since a holder that lives may release sooner:
    /// let _header = left.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Timeout { frees_in, .. } => *frees_in,
            _ => None,
        }
    }

    /// Whether the lock stayed busy for the whole wait.
    ///
    /// ```
    /// use lock_runtime::LockError;
    ///
    /// /// A busy lock wakes nobody up at night.
    /// fn log_level(error: &LockError) -> &'static str {
    ///     if error.is_timeout() { "info" } else { "error" }
    /// }
    /// # assert_eq!(log_level(&LockError::NotInstalled), "error");
    /// ```
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Whether the lock was held and then lost. Then part of the work may be done.
    ///
    /// ```
    /// use lock_runtime::LockError;
    ///
    /// fn may_repeat_blindly(error: &LockError) -> bool {
    ///     !error.is_lost()
    /// }
    /// # assert!(may_repeat_blindly(&LockError::NotInstalled));
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// What a caller can do about a [`LockError`]; see [`LockError::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the lock: try again later, or tell the user.
    Busy,
    /// This process has too much to do: shed load.
    Overloaded,
    /// The lock was held and lost: look at what was done before you repeat it.
    Lost,
    /// The server can't be asked, or does not have enough replicas: try again later.
    Unavailable,
    /// The program is wrong: the error's text says what to write instead.
    Misuse,
    /// The manager is shut down: this process is about to end.
    ShutDown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failure_is_its_source_and_its_kind_says_what_to_do() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let problem = BackendError::caused_by("connection refused", refused);
        let backend = LockError::Backend { key: "p:k".to_owned(), problem: problem.clone() };
        let connect = LockError::Connect { server: "host:6379".to_owned(), problem };
        for (error, key) in [(&backend, Some("p:k")), (&connect, None)] {
            let cause = error.source().unwrap();
            assert!(cause.is::<std::io::Error>(), "{error}");
            assert_eq!((error.kind(), error.key()), (ErrorKind::Unavailable, key));
        }
        let lost =
            LockError::Lost { key: "p:k".to_owned(), completed: true, forced: false, max_hold: None, ticket: false };
        assert_eq!((lost.kind(), lost.key(), lost.source().is_none()), (ErrorKind::Lost, Some("p:k"), true));
        assert_eq!((LockError::NotInstalled.kind(), LockError::NotInstalled.key()), (ErrorKind::Misuse, None));
    }
}
