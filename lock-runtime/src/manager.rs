//! [`LockManager`].

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::local::Core;
use crate::options::LockOptions;
use crate::{LockError, LockKey, LockRequest, scope};

/// A connection to the place where locks live, shared by everything in the process that locks there.
///
/// Cheap to clone. One per process and Redis is what you want: tasks that lock the same key through one manager (or
/// its clones) pass the lock on in memory, without a round trip.
#[derive(Clone)]
pub struct LockManager {
    engine: Arc<Engine>,
}

impl LockManager {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.engine.core()
    }

    pub(crate) fn into_engine(self) -> Arc<Engine> {
        self.engine
    }

    /// Makes this the process's default manager, which `#[cache_lock]` uses when it names none.
    ///
    /// A child after a fork can't use its parent's manager, and installs one of its own in its place.
    ///
    /// # Errors
    ///
    /// [`AlreadyInstalled`](LockError::AlreadyInstalled) when there is one already.
    pub fn install(&self) -> Result<(), LockError> {
        scope::install(&self.engine)
    }

    /// Runs `inside` with this as the default manager: for tests, and for tenants with a Redis of their own.
    ///
    /// It goes before the installed one, and an inner scope before an outer one. Tasks spawned inside do not
    /// inherit it, also when an executor that is driven inside polls them.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `inside`.
    pub async fn scope<F: Future>(&self, inside: F) -> F::Output {
        scope::with_manager(Arc::clone(&self.engine), inside).await
    }

    /// The manager that `#[cache_lock]` would use here: the scope's, else the installed one.
    #[must_use]
    pub fn current() -> Option<Self> {
        scope::current().map(Self::new)
    }

    /// A request for the lock named `prefix:key` (with a namespace, `namespace:prefix:key`).
    ///
    /// `prefix` is taken as it is: the author's text, not input. `key` is escaped.
    pub fn lock<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> LockRequest {
        LockRequest::new(Arc::clone(&self.engine), LockOptions::new(prefix, key))
    }

    /// Gives everything back: refuses new locks, fails waiters with [`ShutDown`](LockError::ShutDown), lets holds
    /// end for the builder's [`drain`](crate::Builder::drain) time, then ends the rest (their bodies are dropped) and
    /// releases it all. It takes the drain time and, while servers do not answer, up to 6 s more: 2 s each for bodies that
    /// do not end, for the last releases, and for the keeper's. What could not be given back by then is left to expire.
    ///
    /// Call it at the end of `main` and on SIGTERM: a process that just exits leaves its locks to expire. A body that calls it
    /// under a lock of this manager would wait for itself: that body's locks are not waited for, it goes on when all others are
    /// given back, and gives back its own at its end. A warning tells of it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again to go on.
    pub async fn shutdown(&self) {
        let own = scope::held_keys(self.core());
        self.engine.shutdown(&own).await;
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("label", &self.core().label()).finish_non_exhaustive()
    }
}
