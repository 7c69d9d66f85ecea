//! A user's crate with one locked fn, and with a call of each public method that waits. `tests/tests/checks/users_build.rs` counts
//! how much of the lock's inside is compiled here again.
//!
//! Each future is boxed: that is where the compiler makes its code, as it does where a program spawns it. Each fn is compiled here, and
//! not in the crate that would call it.

use std::pin::Pin;
use std::time::Duration;

/// For `generic_methods.rs`, which the check compiles beside this crate.
pub use lock_runtime;
use lock_runtime::{LockError, LockGuard, LockManager, cache_lock};

/// A boxed future of a call.
pub type Call<T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send>>;

#[cache_lock(prefix = "seckill", key = id, timeout_ms = 2000, expire_s = 1000)]
async fn buy(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// The one locked fn.
#[must_use]
#[inline(never)]
pub fn one_locked_fn() -> Call<u64> {
    Box::pin(buy(7))
}

/// The ways to a manager, and its end.
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

/// The ways to a guard, and what is done with it.
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

/// What people ask of a manager.
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

/// The same on a thread.
///
/// # Errors
///
/// When the lock can't be had.
#[inline(never)]
pub fn on_a_thread(locks: &LockManager) -> Result<u64, LockError> {
    drop(locks.lock("order", &7).acquire_blocking()?);
    locks.lock("order", &7).run_blocking(|| 7)
}
