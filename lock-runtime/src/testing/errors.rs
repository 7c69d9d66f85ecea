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

use crate::{BackendError, LockError};

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
    LockError::Timeout { key: key.to_owned(), waited, holder, held_here: false, frees_in: None }
}

/// [`LockError::Lost`]: the lock was lost under a body that ran to its end (`completed`), or was dropped before.
///
/// ```
/// # use lock_runtime::testing::errors;
/// assert!(errors::lost("seckill:7", false).is_lost());
/// ```
#[must_use]
pub fn lost(key: &str, completed: bool) -> LockError {
    LockError::Lost { key: key.to_owned(), completed, forced: false, max_hold: None }
}

/// [`LockError::Backend`]: Redis could not be asked, or could not do it, for the reason in `problem`.
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
