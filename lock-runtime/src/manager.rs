//! [`LockManager`]: the user's handle on one place where locks live.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};

use crate::engine::Engine;
use crate::local::Core;
use crate::opaque::Opaque;
use crate::options::LockOptions;
use crate::{LockError, LockKey, LockRequest, LockStats, scope, surroundings};

mod reach;
mod tickets;
mod tools;

pub use tools::LockServer;

/// A connection to the place where locks live, shared by everything in the process that locks there.
///
/// It is cheap to clone. Make one per process and Redis: tasks that lock the same key through one manager (or its
/// clones) hand the lock over in memory, without a round trip.
///
/// ```
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let sum = locks.lock("account", &42).run(async { 40 + 2 }).await?;
/// assert_eq!(sum, 42);
/// locks.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    engine: Opaque<Engine>,
}

impl LockManager {
    pub(crate) fn new(engine: Opaque<Engine>) -> Self {
        Self { engine }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.engine.core()
    }

    pub(crate) fn into_engine(self) -> Opaque<Engine> {
        self.engine
    }

    /// Makes this the default manager of the process. `#[cache_lock]` uses it when the attribute names no manager.
    ///
    /// A child after a fork can't use the manager of its parent. The child may install a manager of its own in its
    /// place.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// locks.install()?;
    /// assert!(LockManager::current().is_some());
    /// assert!(matches!(locks.install(), Err(LockError::AlreadyInstalled)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`AlreadyInstalled`](LockError::AlreadyInstalled) when the process has a default manager already.
    pub fn install(&self) -> Result<(), LockError> {
        scope::install(&self.engine)
    }

    /// Runs `inside` with this as the default manager: for tests, and for tenants that have a Redis of their own.
    ///
    /// A scope takes precedence over the installed manager, and an inner scope over an outer scope. A task that is
    /// spawned inside does not inherit the scope, not even when an executor inside the scope polls that task.
    ///
    /// ```
    /// use lock_runtime::{LockError, LockManager, cache_lock};
    ///
    /// #[cache_lock(key = order)]
    /// async fn pay(order: u32) -> Result<u32, LockError> {
    ///     Ok(order)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// // Each test has locks of its own.
    /// assert_eq!(LockManager::in_memory().scope(pay(7)).await?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `inside`.
    pub async fn scope<F: Future>(&self, inside: F) -> F::Output {
        scope::with_manager(self.engine.clone(), inside).await
    }

    /// The manager that `#[cache_lock]` would use here: the manager of the scope, else the installed manager.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// assert!(LockManager::current().is_none());
    /// let locks = LockManager::in_memory();
    /// assert!(locks.scope(async { LockManager::current() }).await.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        scope::current().map(Self::new)
    }

    /// A request for the lock named `prefix:key` (with a namespace, `namespace:prefix:key`).
    ///
    /// `prefix` is used as it is written: it is the author's text, not input. `key` is escaped. Nothing is sent yet; a
    /// mistake in either is reported when the request is awaited.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("seat", &("ICE 71", 12)).acquire().await?;
    /// assert_eq!(guard.key(), "seat:ICE 71:12");
    /// # Ok(()) }
    /// ```
    pub fn lock<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> LockRequest {
        LockRequest::new(self.engine.clone(), LockOptions::new(prefix, key))
    }

    /// A request for several locks, all or none: one named `prefix:key` for each of the `keys`.
    ///
    /// - The locks are taken in the order of their names. So fns that lock several keys never block each other for ever, in
    ///   whatever order they name the keys and in whatever process they run.
    /// - A key that is given twice counts once. No key at all is [`InvalidKey`](LockError::InvalidKey), and so are more than 1,000 keys.
    /// - One timeout is for all. When it is over, nothing stays locked, and the error names the key that was busy.
    /// - When one lock is lost, the hold is lost: a body is stopped, and the other locks are released.
    /// - Locks that are free are taken in one round trip, if they are on one server.
    /// - Inside a body that holds some of the locks already, these are entered again.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let (from, to) = (7, 3);
    /// let guard = locks.lock_all("account", [from, to]).acquire().await?;
    /// assert_eq!(guard.keys(), ["account:3", "account:7"]);
    /// assert!(locks.lock("account", &7).try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn lock_all<K: LockKey>(&self, prefix: &str, keys: impl IntoIterator<Item = K>) -> LockRequest {
        LockRequest::new(self.engine.clone(), LockOptions::all(prefix, keys))
    }

    /// Ends the manager and releases all its leases:
    ///
    /// 1. It refuses new locks, and fails waiters with [`ShutDown`](LockError::ShutDown).
    /// 2. It lets holds end by themselves for the [`drain`](crate::Builder::drain) time. A body that it waits for may take further locks
    ///    of this manager meanwhile, and wait for them: whatever is asked for inside of a body, as for re-entry. Not so a spawned
    ///    task, nor a task that has a plain [`LockGuard`](crate::LockGuard): nobody knows which task needs it.
    /// 3. It ends the other holds, whose bodies are dropped, and releases their leases.
    ///
    /// It takes at most the drain time and 6 s: 2 s each for bodies that do not end, for the last releases, and for the
    /// keeper's releases. It needs the 6 s only while bodies do not end or servers do not answer. A lease that is not
    /// released by then expires.
    ///
    /// Its connections close with its last handle; an installed manager has them until the process ends. Nothing is sent on them.
    ///
    /// Call it at the end of `main` and on SIGTERM: the locks of a process that just exits stay taken until they
    /// expire.
    ///
    /// A body that calls it under a lock of this manager would wait for itself. So this call does not wait for the
    /// locks of that body: it returns when all others are released, and the body releases its own locks at its end. An
    /// event of level `WARN` says so.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let locks = LockManager::in_memory();
    /// // …until the process is told to stop:
    /// locks.shutdown().await;
    /// assert!(matches!(locks.lock("p", "k").acquire().await, Err(LockError::ShutDown { .. })));
    /// # }
    /// ```
    ///
    /// It needs no runtime of tokio around it: a program of plain threads awaits it on whatever polls futures.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again to continue.
    pub async fn shutdown(&self) {
        self.shutting_down().await;
    }

    /// Boxed, and so compiled here once.
    fn shutting_down(&self) -> BoxFuture<'_, ()> {
        let own = scope::held_keys(self.core());
        async move {
            let ending = self.engine.shutdown(&own);
            if surroundings::check().is_ok() {
                return ending.await;
            }
            // Each lock that is left here stays taken for its lease. So this call needs nothing around it.
            if let Ok(thread) = self.engine.thread() {
                thread.inside(ending).await;
            }
        }
        .boxed()
    }
}

/// What it does now, and has done.
impl LockManager {
    /// What this manager has counted, and what it does now. Nothing is sent.
    ///
    /// It costs about as much as a look at each key in use, and may be called each second.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// locks.lock("order", &7).acquire().await?.release().await?;
    /// let stats = locks.stats();
    /// println!("{} locks, {} of them lost", stats.acquired, stats.lost);
    /// assert_eq!((stats.acquired, stats.held), (1, 0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> LockStats {
        self.core().stats()
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("label", &self.core().label()).finish_non_exhaustive()
    }
}
