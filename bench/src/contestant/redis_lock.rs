//! The crate redis-lock.

use std::sync::Arc;
use std::time::Duration;

use redis_lock::LockAcrossOptions;
use redis_of_redis_lock::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use super::{Contestant, LEASE_MS, PATIENCE};

/// As in its documentation (one connection behind a mutex, a lease of 10 ms), or `TUNED`: a retry every 5 ms, a lease that outlasts the
/// body, and a separate handle of the connection for each call.
#[derive(Clone)]
pub(crate) struct RedisLock<const TUNED: bool> {
    shared: Arc<Mutex<MultiplexedConnection>>,
    connection: MultiplexedConnection,
}

impl<const TUNED: bool> Contestant for RedisLock<TUNED> {
    async fn connect(url: &str) -> Result<Self, String> {
        let client = redis_of_redis_lock::Client::open(url).map_err(|error| error.to_string())?;
        let connection = client.get_multiplexed_async_connection().await.map_err(|error| error.to_string())?;
        Ok(Self { shared: Arc::new(Mutex::new(connection.clone())), connection })
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let (connection, options) = if TUNED {
            let ttl = Duration::from_millis(LEASE_MS);
            let options = LockAcrossOptions { ttl, retry: Duration::from_millis(5), duration: PATIENCE };
            (Arc::new(Mutex::new(self.connection.clone())), options)
        } else {
            (Arc::clone(&self.shared), LockAcrossOptions::default())
        };
        let outcome = redis_lock::lock_across(&[connection], key, body, options).await;
        outcome.map_err(|error| error.to_string())
    }
}
