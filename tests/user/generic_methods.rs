//! Generic methods of a user that hold the lock's types across an await. `tests/tests/checks/users_build.rs` compiles this file.
//!
//! For each generic fn the compiler proves again that its boxed future is `Send`. The limit below bounds the depth of that proof. So a
//! handle whose proof goes through the lock's internals does not compile here: such a proof took 0.4 s per method.

#![recursion_limit = "48"]

use std::pin::Pin;
use std::time::Duration;

use user::lock_runtime::{LockError, LockGuard, LockManager, LockRequest, cache_lock};

/// Its methods look like the expansion of `#[async_trait]`.
pub struct Shop {
    locks: LockManager,
}

impl Shop {
    #[cache_lock(prefix = "shop", key = 7, manager = &self.locks, guard = guard, fenced = token, crate = user::lock_runtime)]
    pub fn locked<'a, T: Send + Sync + 'a>(
        &'a self,
        order: &'a T,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(async move {
            work(order).await;
            guard.extend(Duration::from_secs(u64::from(token))).await
        })
    }

    #[cache_lock(prefix = "shop", keys = [7, 8], crate = user::lock_runtime)]
    pub fn locked_by_the_installed_manager<'a, T: Send + Sync + 'a>(
        order: T,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(async move {
            work(&order).await;
            Ok(())
        })
    }

    pub fn body<'a, T: Send + Sync + 'a>(
        &'a self,
        order: T,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(async move { self.locks.lock("shop", &7).run(work(&order)).await })
    }

    pub fn scope<'a, T: Send + Sync + 'a>(
        &'a self,
        order: T,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(async move {
            self.locks.scope(work(&order)).await;
            Ok(())
        })
    }

    pub fn guard<'a, T: Send + Sync + 'a>(
        &'a self,
        order: T,
        request: LockRequest,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(async move {
            let tried: Option<LockGuard> = self.locks.lock("shop", &7).try_acquire().await?;
            let guard = request.acquire().await?;
            work(&order).await;
            guard.lost().await;
            drop(tried);
            let guard = self.locks.adopt(guard.into_ticket(Duration::from_secs(5)).await?).await?;
            guard.release().await
        })
    }

    pub fn reach<'a, T: Send + Sync + 'a>(
        &'a self,
        locks: LockManager,
        order: T,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(async move {
            locks.inspect("shop", &7).await?;
            locks.force_release("shop", &7).await?;
            work(&order).await;
            locks.shutdown().await;
            Ok(())
        })
    }
}

/// Something to await.
async fn work<T: Sync>(_: &T) {
    std::future::ready(()).await;
}
