//! The crate distributed-lock-redis.

use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::RedisLockProvider;

use super::{Contestant, PATIENCE};

/// As in its documentation, or `TUNED`: the caller tries again every 5 ms after a refusal.
#[derive(Clone)]
pub(crate) struct DistributedLock<const TUNED: bool>(Arc<RedisLockProvider>);

impl<const TUNED: bool> Contestant for DistributedLock<TUNED> {
    async fn connect(url: &str) -> Result<Self, String> {
        let provider = RedisLockProvider::new(url).await.map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(provider)))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let lock = self.0.create_lock(key);
        let handle = loop {
            // A timeout starts a timer task for each call, which outlives the call. The tuned contestant tries without.
            let outcome = if TUNED { lock.acquire(None).await } else { lock.acquire(Some(PATIENCE)).await };
            match outcome {
                Err(LockError::Timeout(_)) if TUNED => tokio::time::sleep(Duration::from_millis(5)).await,
                outcome => break outcome.map_err(|error| error.to_string())?,
            }
        };
        let output = body.await;
        handle.release().await.map_err(|error| error.to_string())?;
        Ok(output)
    }
}
