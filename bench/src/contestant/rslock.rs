//! The crate rslock.

use std::time::Duration;

use rslock::LockManager;

use super::{Contestant, LEASE_MS};

/// As in its documentation, or `TUNED` to poll every 5 ms at most.
#[derive(Clone, Debug)]
pub(crate) struct Rslock<const TUNED: bool>(LockManager);

impl<const TUNED: bool> Contestant for Rslock<TUNED> {
    async fn connect(url: &str) -> Result<Self, String> {
        let mut manager = LockManager::new(vec![url]);
        if TUNED {
            manager.set_retry(u32::MAX, Duration::from_millis(5));
        }
        Ok(Self(manager))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let guard = self.0.acquire(key.as_bytes(), Duration::from_millis(LEASE_MS)).await;
        let guard = guard.map_err(|error| error.to_string())?;
        let output = body.await;
        guard.release().await;
        Ok(output)
    }
}
