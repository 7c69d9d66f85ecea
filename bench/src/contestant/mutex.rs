//! `tokio::sync::Mutex`, one per key: the cost of a lock inside a process.

use std::sync::Arc;

use super::Contestant;

/// Enough for the keys of every workload, so that no two of them share one.
const KEYS: usize = 16_384;

#[derive(Clone, Debug)]
pub(crate) struct Mutex(Arc<[tokio::sync::Mutex<()>]>);

impl Contestant for Mutex {
    async fn connect(_url: &str) -> Result<Self, String> {
        Ok(Self((0..KEYS).map(|_| tokio::sync::Mutex::new(())).collect()))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        // Keys end in their number, so that no table has to be searched.
        let number = key.rsplit(':').next().and_then(|number| number.parse::<usize>().ok());
        let mutex = number.and_then(|number| self.0.get(number)).ok_or("no such key")?;
        let _held = mutex.lock().await;
        Ok(body.await)
    }
}
