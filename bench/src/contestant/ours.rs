//! This project, over Redis and in memory.

use std::time::Duration;

use lock_runtime::LockManager;

use super::{Contestant, PATIENCE};

/// One manager per process, [`run`](lock_runtime::LockRequest::run) as the attribute calls it.
#[derive(Clone, Debug)]
pub(crate) struct Ours(pub(crate) LockManager);

impl Contestant for Ours {
    async fn connect(url: &str) -> Result<Self, String> {
        LockManager::connect(url).await.map(Self).map_err(|error| error.to_string())
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let request = self.0.lock("bench", key).timeout(PATIENCE);
        request.run(body).await.map_err(|error| error.to_string())
    }
}

/// This project with locks that linger for the next hold as long as allowed.
#[derive(Clone, Debug)]
pub(crate) struct Lingering(Ours);

impl Contestant for Lingering {
    async fn connect(url: &str) -> Result<Self, String> {
        let builder = LockManager::builder().url(url).linger(Duration::from_secs(2));
        builder.connect().await.map(|locks| Self(Ours(locks))).map_err(|error| error.to_string())
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        self.0.with(key, body).await
    }
}

/// This project over the embedded store.
#[derive(Clone, Debug)]
pub(crate) struct InMemory(Ours);

impl Contestant for InMemory {
    async fn connect(_url: &str) -> Result<Self, String> {
        Ok(Self(Ours(LockManager::in_memory())))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        self.0.with(key, body).await
    }
}
