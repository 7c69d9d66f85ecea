//! This project's other modes: as a reader, with a permit, two keys at once.

use lock_runtime::LockManager;

use super::{Contestant, Ours, PATIENCE, PERMITS};

/// Readers and writers.
#[derive(Clone, Debug)]
pub(crate) struct Readers(Ours);

impl Contestant for Readers {
    async fn connect(url: &str) -> Result<Self, String> {
        Ours::connect(url).await.map(Self)
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let request = self.locks().lock("bench", key).read().timeout(PATIENCE);
        request.run(body).await.map_err(|error| error.to_string())
    }

    async fn with_as_writer<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        self.0.with(key, body).await
    }
}

impl Readers {
    fn locks(&self) -> &LockManager {
        &self.0.0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Permits(Ours);

impl Contestant for Permits {
    async fn connect(url: &str) -> Result<Self, String> {
        Ours::connect(url).await.map(Self)
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let request = self.0.0.lock("bench", key).permits(PERMITS).timeout(PATIENCE);
        request.run(body).await.map_err(|error| error.to_string())
    }
}

/// The key, and a second one.
#[derive(Clone, Debug)]
pub(crate) struct TwoKeys(Ours);

impl Contestant for TwoKeys {
    async fn connect(url: &str) -> Result<Self, String> {
        Ours::connect(url).await.map(Self)
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let request = self.0.0.lock_all("bench", [key, "w15:other"]).timeout(PATIENCE);
        request.run(body).await.map_err(|error| error.to_string())
    }
}
