//! A lock for a thread without a runtime.

use super::LockRequest;
use crate::blocking::{self, Blocking};
use crate::{LockError, LockGuard};

impl LockRequest {
    /// The same as [`acquire`](Self::acquire) for a thread without a runtime: it waits on the calling thread.
    ///
    /// It needs nothing of the caller's surroundings: plain threads, `spawn_blocking`, and jobs of rayon that do not wait in their pool
    /// may call it. The guard is released when it is dropped.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// let locks = LockManager::in_memory();
    /// let worker = std::thread::spawn(move || {
    ///     let _guard = locks.lock("catalog", "all").acquire_blocking()?;
    ///     // …read, change, write…
    ///     Ok::<_, LockError>(())
    /// });
    /// assert!(worker.join().is_ok_and(|outcome| outcome.is_ok()));
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`InAsyncTask`](LockError::InAsyncTask) in an async task, whose thread must not wait.
    pub fn acquire_blocking(self) -> Result<LockGuard, LockError> {
        blocking::acquire(&mut self.options.entry(Some(self.engine), false)?)
    }

    /// The same as [`run`](Self::run) for a thread without a runtime: it waits on the calling thread, and runs `body` there.
    /// `#[cache_lock]` on a fn that is not async expands to this.
    ///
    /// A closure can't be stopped. When the lock is lost under it, it runs to its end, and its caller gets
    /// [`Lost`](LockError::Lost) with `completed: true`. The lock is released when the closure has ended, or ends with its lease.
    /// What the closure calls on the same thread enters the lock that it holds.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// let locks = LockManager::in_memory();
    /// let sum = locks.lock("account", &42).run_blocking(|| 40 + 2)?;
    /// assert_eq!(sum, 42);
    /// # Ok::<_, LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`InAsyncTask`](LockError::InAsyncTask) in an async task, whose thread must not wait.
    ///
    /// # Panics
    ///
    /// When `body` panics. The lock is released.
    pub fn run_blocking<T>(self, body: impl FnOnce() -> T) -> Result<T, LockError> {
        let held = Blocking::enter(&mut self.options.entry(Some(self.engine), true)?)?;
        let outcome = held.held.run(body);
        held.finish(outcome)
    }
}
