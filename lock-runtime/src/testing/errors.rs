//! Errors made by hand, for tests of code that takes a [`LockError`] and has no lock.
//!
//! ```
//! use std::time::Duration;
//! use lock_runtime::LockError;
//! use lock_runtime::testing::errors;
//!
//! fn status(error: &LockError) -> u16 {
//!     if error.is_timeout() { 409 } else { 503 }
//! }
//!
//! assert_eq!(status(&errors::timeout("seckill:7", Duration::from_secs(2), Some("shop-1"))), 409);
//! assert_eq!(status(&errors::backend("seckill:7", "connection refused")), 503);
//! ```

use std::time::Duration;

use crate::{BackendError, InvalidKey, LockError};

/// [`LockError::Timeout`]: another holder had the lock for the whole wait. `holder` is the label of its manager.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::testing::errors;
/// assert!(errors::timeout("seckill:7", Duration::from_secs(2), None).is_timeout());
/// ```
#[must_use]
pub fn timeout(key: &str, waited: Duration, holder: Option<&str>) -> LockError {
    let holder = holder.map(str::to_owned);
    let (key, note) = (key.to_owned(), None);
    LockError::Timeout { key, waited, holder, note, held_here: false, frees_in: None, rests: false }
}

/// [`LockError::Timeout`]: the store reported that the lock is free after `frees_in`, unless its holder renews it.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::testing::errors;
/// let second = Duration::from_secs(1);
/// assert_eq!(errors::busy("seckill:7", second, Some("shop-1")).retry_after(), Some(second));
/// ```
#[must_use]
pub fn busy(key: &str, frees_in: Duration, holder: Option<&str>) -> LockError {
    let holder = holder.map(str::to_owned);
    let (key, frees_in) = (key.to_owned(), Some(frees_in));
    LockError::Timeout { key, waited: Duration::ZERO, holder, note: None, held_here: false, frees_in, rests: false }
}

/// [`LockError::Lost`]: the lock was released by force. `completed`: the body ran to its end.
///
/// ```
/// # use lock_runtime::testing::errors;
/// assert!(errors::forced("seckill:7", false).to_string().contains("by force"));
/// ```
#[must_use]
pub fn forced(key: &str, completed: bool) -> LockError {
    LockError::Lost { key: key.to_owned(), completed, forced: true, max_hold: None, ticket: false }
}

/// [`LockError::Connect`]: the connection to `server` failed for the reason in `problem`.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::connect("redis://10.0.0.5", "connection refused").kind(), ErrorKind::Unavailable);
/// ```
#[must_use]
pub fn connect(server: &str, problem: &str) -> LockError {
    LockError::Connect { server: server.to_owned(), problem: BackendError::new(problem.to_owned()) }
}

/// [`LockError::InvalidKey`]: the key can't be a lock's name, for this `reason`.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::invalid_key("seckill:", "it is empty").kind(), ErrorKind::Misuse);
/// ```
#[must_use]
pub fn invalid_key(key: &str, reason: &str) -> LockError {
    LockError::InvalidKey { key: key.to_owned(), reason: InvalidKey::new(reason.to_owned()) }
}

/// [`LockError::Lost`]: the lock was lost under a body that ran to its end (`completed`), or was dropped before.
///
/// ```
/// # use lock_runtime::testing::errors;
/// assert!(errors::lost("seckill:7", false).is_lost());
/// ```
#[must_use]
pub fn lost(key: &str, completed: bool) -> LockError {
    LockError::Lost { key: key.to_owned(), completed, forced: false, max_hold: None, ticket: false }
}

/// [`LockError::Backend`]: Redis could not be reached, or could not execute the command, for the reason in `problem`.
///
/// ```
/// # use lock_runtime::testing::errors;
/// assert!(errors::backend("seckill:7", "connection refused").to_string().contains("refused"));
/// ```
#[must_use]
pub fn backend(key: &str, problem: &str) -> LockError {
    LockError::Backend { key: key.to_owned(), problem: BackendError::new(problem.to_owned()) }
}

/// [`LockError::TooManyWaiters`]: the waiter limit was reached.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::too_many_waiters("seckill:7", 100).kind(), ErrorKind::Overloaded);
/// ```
#[must_use]
pub fn too_many_waiters(key: &str, limit: usize) -> LockError {
    LockError::TooManyWaiters { key: key.to_owned(), limit }
}

/// [`LockError::ShutDown`]: the manager is shutting down.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::shut_down("seckill:7").kind(), ErrorKind::ShutDown);
/// ```
#[must_use]
pub fn shut_down(key: &str) -> LockError {
    LockError::ShutDown { key: key.to_owned() }
}

/// [`LockError::Lost`]: the hold lasted for the `max_hold` of its request.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::testing::errors;
/// assert!(errors::max_hold("seckill:7", Duration::from_secs(60)).is_lost());
/// ```
#[must_use]
pub fn max_hold(key: &str, max_hold: Duration) -> LockError {
    LockError::Lost { key: key.to_owned(), completed: false, forced: false, max_hold: Some(max_hold), ticket: false }
}

/// [`LockError::Lost`]: the ticket is no longer valid.
///
/// ```
/// # use lock_runtime::testing::errors;
/// assert!(errors::lost_ticket("seckill:7").to_string().contains("ticket"));
/// ```
#[must_use]
pub fn lost_ticket(key: &str) -> LockError {
    LockError::Lost { key: key.to_owned(), completed: false, forced: false, max_hold: None, ticket: true }
}

/// [`LockError::Timeout`]: the lock rests, and is free after `frees_in`.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::testing::errors;
/// let second = Duration::from_secs(1);
/// assert_eq!(errors::rests("seckill:7", second).retry_after(), Some(second));
/// ```
#[must_use]
pub fn rests(key: &str, frees_in: Duration) -> LockError {
    let (key, frees_in) = (key.to_owned(), Some(frees_in));
    let (holder, note) = (None, None);
    LockError::Timeout { key, waited: Duration::ZERO, holder, note, held_here: false, frees_in, rests: true }
}

/// [`LockError::AlreadyHeld`]: the same task holds the lock.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::already_held("seckill:7").kind(), ErrorKind::Misuse);
/// ```
#[must_use]
pub fn already_held(key: &str) -> LockError {
    LockError::AlreadyHeld { key: key.to_owned(), wants_more: false }
}

/// [`LockError::InAsyncTask`]: a thread that runs async tasks must not wait.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::in_async_task("seckill:7").kind(), ErrorKind::Misuse);
/// ```
#[must_use]
pub fn in_async_task(key: &str) -> LockError {
    LockError::InAsyncTask { key: key.to_owned() }
}

/// [`LockError::InvalidSetting`]: a setting is out of its bounds, for this `reason`.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::invalid_setting("expire", "it is zero").kind(), ErrorKind::Misuse);
/// ```
#[must_use]
pub fn invalid_setting(setting: &'static str, reason: &str) -> LockError {
    LockError::InvalidSetting { setting, reason: reason.to_owned() }
}

/// [`LockError::TooFewReplicas`]: only `confirmed` of `wanted` replicas confirmed the lock.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::too_few_replicas("seckill:7", 0, 1).kind(), ErrorKind::Unavailable);
/// ```
#[must_use]
pub fn too_few_replicas(key: &str, confirmed: u32, wanted: u32) -> LockError {
    LockError::TooFewReplicas { key: key.to_owned(), confirmed, wanted }
}

/// [`LockError::Forked`]: the process is a fork of the one that made the manager.
///
/// ```
/// # use lock_runtime::{ErrorKind, testing::errors};
/// assert_eq!(errors::forked("seckill:7").kind(), ErrorKind::Misuse);
/// ```
#[must_use]
pub fn forked(key: &str) -> LockError {
    LockError::Forked { key: key.to_owned() }
}
