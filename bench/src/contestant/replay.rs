//! The algorithms of two locks of other languages, over the raw client: the cost of their scripts and messages, without their
//! languages. They are replays: the libraries themselves do more.
//!
//! - Redisson (Java): a hash per lock, scripts, and a message on the lock's channel that wakes one waiter of each process. Its
//!   read-write lock has a key with a time to live for each hold of a reader. A waiter tries again when it is woken.
//! - rueidislock (Go): `SET NX PX`, and the server's own notice of a changed key (client-side caching) instead of a message.
//!   In each process one task at a time asks the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, Script, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::raw::resp3;
use super::{Contestant, LEASE_MS};

/// The waiters of one key in this process. A permit wakes one of them.
type Waiters = Arc<Semaphore>;

/// A connection, and the tasks that wait for messages on it.
#[derive(Clone)]
struct Client {
    connection: MultiplexedConnection,
    waiters: Arc<Mutex<HashMap<String, Waiters>>>,
    process: u32,
    sequence: Arc<AtomicU64>,
}

impl Client {
    async fn connect(url: &str) -> Result<Self, String> {
        let waiters: Arc<Mutex<HashMap<String, Waiters>>> = Arc::default();
        let pushed = Arc::clone(&waiters);
        let receive = move |info: PushInfo| {
            on_push(&pushed, &info);
            Ok::<_, redis::aio::SendError>(())
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(4096);
        let connection =
            resp3(url)?.get_multiplexed_async_connection_with_config(&config.set_push_sender(receive)).await;
        let connection = connection.map_err(|error| error.to_string())?;
        Ok(Self { connection, waiters, process: std::process::id(), sequence: Arc::default() })
    }

    /// The waiters of a key, and whether they are new.
    fn waiters(&self, key: &str) -> (Waiters, bool) {
        let mut all = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiters) = all.get(key) {
            return (Arc::clone(waiters), false);
        }
        let waiters = Arc::new(Semaphore::new(0));
        all.insert(key.to_owned(), Arc::clone(&waiters));
        (waiters, true)
    }

    fn token(&self) -> String {
        format!("{:032x}:{}", self.process, self.sequence.fetch_add(1, Ordering::Relaxed))
    }

    async fn query<T: redis::FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        command.query_async(&mut self.connection.clone()).await.map_err(|error| error.to_string())
    }
}

/// Wakes one waiter, or all of them when a writer has made room for readers.
fn on_push(waiters: &Mutex<HashMap<String, Waiters>>, info: &PushInfo) {
    let (key, all) = match (&info.kind, info.data.as_slice()) {
        (PushKind::Message, [Value::BulkString(channel), Value::BulkString(text)]) => (channel, text == b"1"),
        (PushKind::Invalidate, [Value::Array(keys)]) => match keys.first() {
            Some(Value::BulkString(key)) => (key, false),
            _ => return,
        },
        _ => return,
    };
    let known = waiters.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(waiters) = std::str::from_utf8(key).ok().and_then(|key| known.get(key)) {
        waiters.add_permits(if all { 1000 } else { 1 });
    }
}

/// A script of the replays.
struct Replayed {
    script: Script,
}

impl Replayed {
    fn new(text: &str) -> Self {
        Self { script: Script::new(text) }
    }

    async fn run(&self, client: &Client, key: &str, token: &str) -> Result<Option<i64>, String> {
        let mut call = self.script.key(key);
        let timeouts = format!("{key}:{token}:timeout");
        let call = call.key(channel(key)).key(timeouts).arg(LEASE_MS).arg(token);
        call.invoke_async(&mut client.connection.clone()).await.map_err(|error| error.to_string())
    }
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

/// How a lock of Redisson is taken and released.
struct Way {
    lock: Replayed,
    unlock: Replayed,
}

macro_rules! way {
    ($lock:literal, $unlock:literal) => {
        Way {
            lock: Replayed::new(include_str!(concat!("replay/", $lock))),
            unlock: Replayed::new(include_str!(concat!("replay/", $unlock))),
        }
    };
}

async fn with<T>(client: &Client, way: &Way, key: &str, body: impl Future<Output = T>) -> Result<T, String> {
    let token = client.token();
    if let Some(mut left) = way.lock.run(client, key, &token).await? {
        let channel = channel(key);
        let (waiters, is_new) = client.waiters(&channel);
        if is_new {
            client.connection.clone().subscribe(&channel).await.map_err(|error| error.to_string())?;
        }
        loop {
            // A lock that was passed on before the subscription would not be noticed.
            match way.lock.run(client, key, &token).await? {
                None => break,
                Some(now) => left = now.min(left),
            }
            let pause = Duration::from_millis(u64::try_from(left).unwrap_or(1).max(1));
            if let Ok(Ok(woken)) = timeout(pause, waiters.acquire()).await {
                woken.forget();
            }
        }
    }
    let output = body.await;
    match way.unlock.run(client, key, &token).await? {
        Some(_) => Ok(output),
        None => Err("the lock was gone at its release".to_owned()),
    }
}

/// Redisson's `RLock`.
#[derive(Clone)]
pub(crate) struct Redisson(Client, Arc<Way>);

impl Contestant for Redisson {
    async fn connect(url: &str) -> Result<Self, String> {
        Ok(Self(Client::connect(url).await?, Arc::new(way!("lock.lua", "unlock.lua"))))
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        with(&self.0, &self.1, key, body).await
    }
}

/// Redisson's `RReadWriteLock`.
#[derive(Clone)]
pub(crate) struct RedissonReaders {
    client: Client,
    reading: Arc<Way>,
    writing: Arc<Way>,
}

impl Contestant for RedissonReaders {
    async fn connect(url: &str) -> Result<Self, String> {
        let reading = Arc::new(way!("read_lock.lua", "read_unlock.lua"));
        let writing = Arc::new(way!("write_lock.lua", "write_unlock.lua"));
        Ok(Self { client: Client::connect(url).await?, reading, writing })
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        with(&self.client, &self.reading, key, body).await
    }

    async fn with_as_writer<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        with(&self.client, &self.writing, key, body).await
    }
}

/// rueidislock, on one server.
#[derive(Clone)]
pub(crate) struct Rueidislock {
    client: Client,
    gates: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    release: Arc<Script>,
}

impl Contestant for Rueidislock {
    async fn connect(url: &str) -> Result<Self, String> {
        let client = Client::connect(url).await?;
        client.query::<()>(redis::cmd("CLIENT").arg("TRACKING").arg("ON")).await?;
        let text = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        Ok(Self { client, gates: Arc::default(), release: Arc::new(Script::new(text)) })
    }

    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let gate = {
            let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(gates.entry(key.to_owned()).or_default())
        };
        let _first = gate.lock().await;
        let (token, waiters) = (self.client.token(), self.client.waiters(key).0);
        let mut claim = redis::cmd("SET");
        claim.arg(key).arg(&token).arg("NX").arg("PX").arg(LEASE_MS);
        while self.client.query::<Option<()>>(&claim).await?.is_none() {
            // Earlier notices say nothing about this owner.
            while let Ok(old) = waiters.try_acquire() {
                old.forget();
            }
            // Reading the key makes the server report its next change.
            if self.client.query::<Option<String>>(redis::cmd("GET").arg(key)).await?.is_some()
                && let Ok(Ok(woken)) = timeout(Duration::from_millis(LEASE_MS), waiters.acquire()).await
            {
                woken.forget();
            }
        }
        let output = body.await;
        let mut call = self.release.key(key);
        let released: i64 = call
            .arg(&token)
            .invoke_async(&mut self.client.connection.clone())
            .await
            .map_err(|error| error.to_string())?;
        if released == 1 { Ok(output) } else { Err("the lock was gone at its release".to_owned()) }
    }
}
