//! Locks of `tokio::sync` that several tasks share, one per key: the cost of such a lock inside a process.

use std::sync::Arc;

use super::{Contestant, PERMITS};

/// The workloads that share locks have one key.
fn one<T>(key: &str, lock: T) -> Result<T, String> {
    if key.ends_with(":0") { Ok(lock) } else { Err("no such key".to_owned()) }
}

#[derive(Clone, Debug)]
pub(crate) struct RwLock(Arc<tokio::sync::RwLock<()>>);

impl Contestant for RwLock {
    async fn connect(_url: &str) -> Result<Self, String> {
        Ok(Self(Arc::default()))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let _reading = one(key, &self.0)?.read().await;
        Ok(body.await)
    }

    async fn with_as_writer<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let _writing = one(key, &self.0)?.write().await;
        Ok(body.await)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Semaphore(Arc<tokio::sync::Semaphore>);

impl Contestant for Semaphore {
    async fn connect(_url: &str) -> Result<Self, String> {
        Ok(Self(Arc::new(tokio::sync::Semaphore::new(PERMITS as usize))))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let _permit = one(key, &self.0)?.acquire().await.map_err(|error| error.to_string())?;
        Ok(body.await)
    }
}
