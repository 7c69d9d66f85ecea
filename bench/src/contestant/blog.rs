//! The flash-sale article: a key with the value LOCKED, polled every 3 ms and a few random nanoseconds, deleted at the end.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{Contestant, LEASE_MS, PATIENCE};

/// As published, except for `SET NX PX` instead of `SETNX` and then `EXPIRE`: a crash between the two would stop the run.
#[derive(Clone)]
pub(crate) struct Blog(MultiplexedConnection);

impl Contestant for Blog {
    async fn connect(url: &str) -> Result<Self, String> {
        super::connect_raw(url).await.map(Self)
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let mut connection = self.0.clone();
        let began = Instant::now();
        let mut claim = redis::cmd("SET");
        claim.arg(key).arg("LOCKED").arg("NX").arg("PX").arg(LEASE_MS);
        while claim.query_async::<Option<()>>(&mut connection).await.map_err(|error| error.to_string())?.is_none() {
            if began.elapsed() > PATIENCE {
                return Err("not obtained in time".to_owned());
            }
            let nanos = u64::from(began.elapsed().subsec_nanos() % 500);
            tokio::time::sleep(Duration::from_millis(3) + Duration::from_nanos(nanos)).await;
        }
        let output = body.await;
        redis::cmd("DEL").arg(key).exec_async(&mut connection).await.map_err(|error| error.to_string())?;
        Ok(output)
    }
}
