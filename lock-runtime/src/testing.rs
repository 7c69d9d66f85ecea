//! Tests of what a service does when a lock is busy, lost, slow or out of reach: without a server, and in paused time.
//!
//! [`TestLocks`] is a [`LockManager`] over a server in memory, whose faults the test switches on and off. Everything above the
//! server is the code that runs in production: queues, renewals, deadlines, errors.
//!
//! **Busy.** Another process holds the lock:
//!
//! ```
//! use lock_runtime::testing::TestLocks;
//! use lock_runtime::{LockError, cache_lock};
//!
//! #[cache_lock(prefix = "seckill", key = item, timeout_ms = 500)]
//! async fn buy(item: u64) -> Result<(), LockError> {
//!     Ok(())
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // In a test: `#[tokio::test(start_paused = true)]`.
//! async fn main() {
//!     let test = TestLocks::new();
//!     let _other = test.hold_elsewhere("seckill", &7).await;
//!     let outcome = test.manager().scope(buy(7)).await;
//!     assert!(outcome.unwrap_err().is_timeout());
//! }
//! ```
//!
//! **Lost.** The server forgets the lock while the body runs:
//!
//! ```
//! # use std::time::Duration;
//! # use lock_runtime::testing::TestLocks;
//! # use lock_runtime::{LockError, cache_lock};
//! #[cache_lock(prefix = "import", key = id)]
//! async fn import(id: u64) -> Result<(), LockError> {
//!     tokio::time::sleep(Duration::from_secs(600)).await;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestLocks::new();
//! test.lose_at_renewal(3); // The first renewal confirms the lock; then one comes each third of `expire`.
//! let outcome = test.manager().scope(import(1)).await;
//! assert!(outcome.unwrap_err().is_lost());
//! # }
//! ```
//!
//! **Out of reach**, for a while or for good:
//!
//! ```
//! # use std::time::Duration;
//! # use lock_runtime::testing::TestLocks;
//! # use lock_runtime::ErrorKind;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestLocks::new();
//! test.go_down();
//! let error = test.manager().lock("seckill", &7).acquire().await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Unavailable);
//! test.come_up();
//! assert!(test.manager().lock("seckill", &7).acquire().await.is_ok());
//! # }
//! ```
//!
//! **Slow.** Each answer takes its time:
//!
//! ```
//! # use std::time::Duration;
//! # use lock_runtime::testing::TestLocks;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestLocks::new();
//! test.answer_after(Duration::from_millis(300));
//! let begin = tokio::time::Instant::now();
//! let guard = test.manager().lock("seckill", &7).acquire().await.unwrap();
//! assert!(begin.elapsed() >= Duration::from_millis(300));
//! # }
//! ```
//!
//! **Shut down:**
//!
//! ```
//! # use lock_runtime::testing::TestLocks;
//! # use lock_runtime::ErrorKind;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestLocks::new();
//! test.manager().shutdown().await;
//! let error = test.manager().lock("seckill", &7).acquire().await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::ShutDown);
//! # }
//! ```
//!
//! **Is it locked at all?** A check from inside, in code that must run under a lock, and a check from outside:
//!
//! ```
//! # use lock_runtime::testing::{TestLocks, assert_locked};
//! # use lock_runtime::{LockError, cache_lock};
//! #[cache_lock(prefix = "seckill", key = item)]
//! async fn buy(item: u64) -> Result<(), LockError> {
//!     take_from_stock(item);
//!     Ok(())
//! }
//!
//! fn take_from_stock(item: u64) {
//!     assert_locked("seckill", &item); // In a service: behind `#[cfg(test)]`.
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let test = TestLocks::new();
//! test.manager().scope(buy(7)).await.unwrap();
//! assert_eq!(test.granted(), ["seckill:7"]);
//! # }
//! ```
//!
//! [`errors`] makes errors by hand, for code that only takes a [`LockError`](crate::LockError).

use std::sync::Arc;
use std::time::Duration;

use crate::local::HoldHandle;
use crate::scope::Frame;
use crate::store::AnyStore;
use crate::store::faulty::FaultyStore;
use crate::{Builder, LockGuard, LockKey, LockManager, key};

pub mod errors;
#[cfg(test)]
mod tests;

/// A manager for tests, and its server in memory, which fails when the test says so.
///
/// See the [module's page](self) for an example of each fault. Each `TestLocks` has its own server, so tests may run in parallel.
/// [`LockManager::scope`] makes it the default for the code under test.
#[derive(Debug)]
pub struct TestLocks {
    manager: LockManager,
    other: LockManager,
    store: Arc<FaultyStore>,
}

impl TestLocks {
    /// A manager with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::with(LockManager::builder())
    }

    /// A manager with its own settings. An address in the builder is not used.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lock_runtime::LockManager;
    /// use lock_runtime::testing::TestLocks;
    ///
    /// let test = TestLocks::with(LockManager::builder().namespace("shop").default_timeout(Duration::from_secs(5)));
    /// ```
    #[must_use]
    pub fn with(builder: Builder) -> Self {
        let store = Arc::new(FaultyStore::default());
        // The same memory without the faults.
        let elsewhere = Arc::new(FaultyStore { memory: Arc::clone(&store.memory), ..FaultyStore::default() });
        let other = builder.clone().label("another process").over(Arc::new(AnyStore::Faulty(elsewhere)));
        Self { manager: builder.over(Arc::new(AnyStore::Faulty(Arc::clone(&store)))), other, store }
    }

    /// The manager for the code under test.
    #[must_use]
    pub fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// The manager of another process on the same server. Faults do not affect it.
    #[must_use]
    pub fn other_process(&self) -> &LockManager {
        &self.other
    }

    /// Lets another process hold a lock until the guard is dropped. Waits until the lock is free.
    ///
    /// # Panics
    ///
    /// When the key can't name a lock, or the lock is not free within a minute.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn hold_elsewhere<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> LockGuard {
        match self.other.lock(prefix, key).timeout(Duration::from_secs(60)).acquire().await {
            Ok(guard) => guard,
            #[expect(clippy::panic, reason = "a test fails by panicking")]
            Err(error) => panic!("the other process can't have the lock: {error}"),
        }
    }

    /// From now on the server can't be reached.
    pub fn go_down(&self) {
        self.store.set_down(true);
    }

    /// The server can be reached again. It has forgotten nothing.
    pub fn come_up(&self) {
        self.store.set_down(false);
    }

    /// From now on each answer of the server takes this long. A command that has less time fails, and has no effect.
    pub fn answer_after(&self, pause: Duration) {
        self.store.faults.lock().pause = pause;
    }

    /// Makes the server forget a lock. Its holder notices the loss at once, as after a lost connection.
    ///
    /// # Panics
    ///
    /// When the key can't name a lock.
    pub fn lose<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) {
        match self.manager.lock(prefix, key).key() {
            Ok(name) => self.store.forget(&name),
            #[expect(clippy::panic, reason = "a test fails by panicking")]
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes one renewal find that its lock is gone: the one with this number, counted from 1, from now on and over all locks. The first
    /// renewal of a hold confirms it, 5 ms after its start. The next ones follow each third of `expire`. Call it several times for several
    /// losses.
    ///
    /// # Panics
    ///
    /// When the number is zero.
    #[track_caller]
    pub fn lose_at_renewal(&self, number: u32) {
        assert!(number > 0, "renewals are counted from 1");
        self.store.faults.lock().renewals_until_loss.push(number);
    }

    /// The names of the locks that the server has granted to the manager under test, in that order. A hand-over between tasks of the
    /// manager does not add to the list.
    #[must_use]
    pub fn granted(&self) -> Vec<String> {
        self.store.faults.lock().granted.clone()
    }
}

impl Default for TestLocks {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the running task is inside of a body that holds this lock: a body of the attribute or of
/// [`LockRequest::run`](crate::LockRequest::run). A plain guard belongs to no task, so it does not count.
///
/// ```
/// # use lock_runtime::testing::{TestLocks, is_locked_here};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let test = TestLocks::new();
/// let inside = test.manager().lock("seckill", &7).run(async { is_locked_here("seckill", &7) }).await;
/// assert!(inside.unwrap());
/// assert!(!is_locked_here("seckill", &7));
/// # }
/// ```
#[must_use]
pub fn is_locked_here<K: LockKey + ?Sized>(prefix: &str, key: &K) -> bool {
    let Ok(name) = key::name(prefix, key) else { return false };
    let is_name = |hold: &HoldHandle| hold.full_name_of(&name).is_ok_and(|name| *name == *hold.key());
    Frame::find(|hold| is_name(hold) && hold.is_valid()).is_some()
}

/// Fails a test whose code is not inside of a body that holds this lock. See [`is_locked_here`].
///
/// # Panics
///
/// When [`is_locked_here`] is `false`.
#[track_caller]
pub fn assert_locked<K: LockKey + ?Sized>(prefix: &str, key: &K) {
    assert!(is_locked_here(prefix, key), "this code must run under the lock of prefix `{prefix}`, and does not");
}
