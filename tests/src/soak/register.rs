//! [`Register`]: a resource that checks fencing tokens, on a server that no fault hits.

use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

const OPEN: &str = "
local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < last then return -1 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'value') or '0')";

const WRITE: &str = "
local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < last then return -1 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 0";

/// A counter per lock. Opening it shuts out every smaller token, so what the holder read stays true until it writes.
#[derive(Clone, Debug)]
pub struct Register {
    connection: MultiplexedConnection,
    patience: Duration,
}

impl Register {
    /// The register on the server at `url`.
    pub async fn connect(url: &str) -> Self {
        Self::patient(url, Duration::from_secs(2)).await
    }

    /// A register whose requests time out after `patience`.
    pub async fn patient(url: &str, patience: Duration) -> Self {
        let client = redis::Client::open(url).expect("a readable URL");
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        Self { connection: connection.expect("the register's server answers"), patience }
    }

    /// Opens the counter and returns its value; `Some(None)` for a token that is too small, `None` without an answer.
    pub async fn open(&self, key: &str, fence: u64) -> Option<Option<u64>> {
        let answer = self.run(redis::cmd("EVAL").arg(OPEN).arg(1).arg(key).arg(fence)).await?;
        Some(u64::try_from(answer).ok())
    }

    /// Whether the write was accepted; `None` without an answer.
    pub async fn write(&self, key: &str, fence: u64, value: u64) -> Option<bool> {
        let answer = self.run(redis::cmd("EVAL").arg(WRITE).arg(1).arg(key).arg(fence).arg(value)).await?;
        Some(answer == 0)
    }

    /// The counter's value.
    pub async fn value(&self, key: &str) -> Option<u64> {
        let mut connection = self.connection.clone();
        redis::cmd("HGET").arg(key).arg("value").query_async::<Option<u64>>(&mut connection).await.ok()?
    }

    async fn run(&self, command: &redis::Cmd) -> Option<i64> {
        let mut connection = self.connection.clone();
        let answer = tokio::time::timeout(self.patience, command.query_async(&mut connection));
        answer.await.ok()?.ok()
    }
}
