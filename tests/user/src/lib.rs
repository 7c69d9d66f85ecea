//! A user's crate with one locked fn, and a call of each public async method. `tests/tests/checks/users_build.rs` counts how much of
//! the lock's internals is compiled here again.
//!
//! Each future is boxed, which makes the compiler generate its code here, as it does where a program spawns a future. Each fn is
//! compiled here, and not in the crate that would call it.

use std::pin::Pin;
use std::time::Duration;

/// For `generic_methods.rs`, which the check compiles next to this crate.
pub use lock_runtime;
use lock_runtime::{LockError, LockGuard, LockManager, cache_lock};

/// A boxed future of a call.
pub type Call<T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send>>;

#[cache_lock(prefix = "seckill", key = id, timeout_ms = 2000, expire_s = 1000)]
async fn buy(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Calls the locked fn.
#[must_use]
#[inline(never)]
pub fn one_locked_fn() -> Call<u64> {
    Box::pin(buy(7))
}

/// All ways to make a manager, and its shutdown.
#[must_use]
#[inline(never)]
pub fn managers(url: &'static str) -> Call<()> {
    Box::pin(async move {
        let locks = LockManager::connect(url).await?;
        LockManager::builder().url(url).connect_lazy()?.shutdown().await;
        locks.shutdown().await;
        Ok(())
    })
}

/// All ways to get a guard, and its methods.
#[must_use]
#[inline(never)]
pub fn guards(locks: LockManager) -> Call<()> {
    Box::pin(async move {
        let guard: LockGuard = locks.lock("order", &7).acquire().await?;
        guard.extend(Duration::from_secs(5)).await?;
        guard.lost().await;
        guard.release().await?;
        drop(locks.lock("order", &7).try_acquire().await?);
        drop(locks.lock_all("order", [7, 8]).acquire().await?);
        Ok(())
    })
}

/// A manager's methods for operators.
#[must_use]
#[inline(never)]
pub fn reaching(locks: LockManager) -> Call<bool> {
    Box::pin(async move {
        let is_held = locks.inspect("order", &7).await?.is_some();
        Ok(is_held && locks.force_release("order", &7).await?)
    })
}

/// A body under a request's lock.
#[must_use]
#[inline(never)]
pub fn body(locks: LockManager) -> Call<u64> {
    Box::pin(async move { locks.lock("order", &7).run(async { 7 }).await })
}

/// A body under a lock, on a thread.
///
/// # Errors
///
/// If the lock is not granted.
#[inline(never)]
pub fn on_a_thread(locks: &LockManager) -> Result<u64, LockError> {
    drop(locks.lock("order", &7).acquire_blocking()?);
    locks.lock("order", &7).run_blocking(|| 7)
}
