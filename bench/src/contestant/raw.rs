//! The floor: the two commands that any such lock needs, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, Script};

use super::{Contestant, LEASE_MS, PATIENCE};

/// How long a refused contestant waits before it tries again.
const POLL: Duration = Duration::from_millis(2);

/// `SET NX PX`, and compare-and-delete by `EVALSHA`, on one multiplexed connection; polling under contention.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    digest: Arc<str>,
    process: u32,
    sequence: Arc<AtomicU64>,
}

/// A client set up like lock-runtime's.
pub(super) fn resp3(url: &str) -> Result<redis::Client, String> {
    let client = redis::Client::open(url).map_err(|error| error.to_string())?;
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    redis::Client::open(info).map_err(|error| error.to_string())
}

/// A connection set up like lock-runtime's: RESP3, no timeout of the client, room for every command.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, String> {
    let client = resp3(url)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(4096);
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| error.to_string())
}

/// The raw commands in a runtime with a pending timer, as every service has one.
#[derive(Clone)]
pub(crate) struct RawBesideTimer(Raw);

impl Contestant for RawBesideTimer {
    async fn connect(url: &str) -> Result<Self, String> {
        tokio::spawn(tokio::time::sleep(PATIENCE));
        Raw::connect(url).await.map(Self)
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        self.0.with(key, body).await
    }
}

impl Contestant for Raw {
    async fn connect(url: &str) -> Result<Self, String> {
        let mut connection = connect(url).await?;
        let text = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        let digest = Script::new(text).get_hash().into();
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).exec_async(&mut connection).await;
        load.map_err(|error| error.to_string())?;
        Ok(Self { connection, digest, process: std::process::id(), sequence: Arc::default() })
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let mut connection = self.connection.clone();
        let token = format!("{:032x}.{}", self.process, self.sequence.fetch_add(1, Ordering::Relaxed));
        let mut claim = Cmd::with_capacity(6, 64 + key.len() + token.len());
        claim.arg("SET").arg(key).arg(&token).arg("NX").arg("PX").arg(LEASE_MS);
        loop {
            let reply: Option<()> = claim.query_async(&mut connection).await.map_err(|error| error.to_string())?;
            if reply.is_some() {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        let output = body.await;
        let mut release = Cmd::with_capacity(5, 96 + key.len() + token.len());
        release.arg("EVALSHA").arg(&*self.digest).arg(1).arg(key).arg(&token);
        match release.query_async::<u8>(&mut connection).await {
            Ok(1) => Ok(output),
            Ok(_) => Err("the lock was gone at its release".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
