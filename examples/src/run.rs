//! [`Run`]: one run of a story, with a namespace of its own and the place where its locks and numbers live.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_runtime::LockManager;
use redis::aio::MultiplexedConnection;

use crate::server::Server;
use crate::{Failure, Ledger, Options};

/// One run of a story, over all its processes.
#[derive(Debug)]
pub struct Run {
    /// Keeps runs apart that share a Redis, and tells which keys to delete in the end.
    namespace: String,
    /// `None` when everything lives in this process.
    redis: Option<String>,
    server: Option<Server>,
    for_children: Vec<(&'static str, String)>,
}

impl Run {
    /// A run that lives in this process, unless a server was named or several processes share the tasks.
    ///
    /// # Errors
    ///
    /// When a server is needed, none was named and none can be started.
    pub async fn begin(options: &Options) -> Result<Self, Failure> {
        if options.redis.is_none() && options.processes == 1 {
            return Ok(Self::new(options, None, None));
        }
        Self::begin_on_server(options).await
    }

    /// A run on a server: the one that was named, else one of our own.
    ///
    /// # Errors
    ///
    /// When none was named and none can be started.
    pub async fn begin_on_server(options: &Options) -> Result<Self, Failure> {
        match &options.redis {
            Some(url) => Ok(Self::new(options, Some(url.clone()), None)),
            None => {
                let server = Server::start().await?;
                Ok(Self::new(options, Some(server.url().to_owned()), Some(server)))
            }
        }
    }

    fn new(options: &Options, redis: Option<String>, server: Option<Server>) -> Self {
        Self {
            namespace: options.namespace.clone().unwrap_or_else(unique),
            redis,
            server,
            for_children: Vec::new(),
        }
    }

    /// A manager of this run's locks.
    ///
    /// # Errors
    ///
    /// When the server can't be reached.
    pub async fn locks(&self) -> Result<LockManager, Failure> {
        let builder = LockManager::builder().namespace(&self.namespace);
        match &self.redis {
            None => Ok(builder.in_memory()),
            Some(url) => Ok(builder.url(url).connect().await?),
        }
    }

    /// This run's numbers.
    ///
    /// # Errors
    ///
    /// When the server can't be reached.
    pub async fn ledger(&self) -> Result<Ledger, Failure> {
        match self.connection().await? {
            None => Ok(Ledger::in_memory()),
            Some(connection) => Ok(Ledger::in_redis(connection, &self.namespace)),
        }
    }

    /// Where locks and numbers live, for the sentence that a story starts with.
    #[must_use]
    pub fn place(&self) -> &'static str {
        match (&self.redis, &self.server) {
            (None, _) => "in the memory of this process",
            (Some(_), None) => "on the Redis server that you named",
            (Some(_), Some(_)) => "on a Redis server started for this run",
        }
    }

    /// Whether other processes can take part.
    #[must_use]
    pub fn is_on_server(&self) -> bool {
        self.redis.is_some()
    }

    /// The run's name: different for every run.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Sets an environment variable for the child processes to come.
    pub fn tell_children(&mut self, variable: &'static str, value: String) {
        self.for_children.push((variable, value));
    }

    /// Leaves nothing of this run on the server.
    ///
    /// # Errors
    ///
    /// When the server can't be reached.
    pub async fn end(self) -> Result<(), Failure> {
        let Some(mut connection) = self.connection().await? else {
            return Ok(());
        };
        let mut cursor = 0_u64;
        loop {
            // Stars on both sides: helper keys of a lock start with a brace.
            let pattern = format!("*{}*", self.namespace);
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
            let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await?;
            if !keys.is_empty() {
                let _: u64 = redis::cmd("UNLINK").arg(keys).query_async(&mut connection).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// What a child process must be told to be part of this run. The URL goes by the environment, because it may
    /// contain a password and command lines are public.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let redis = self.redis.iter().map(|url| ("REDIS_URL", url.as_str()));
        let told = self.for_children.iter().map(|(name, value)| (*name, value.as_str()));
        redis.chain(told)
    }

    async fn connection(&self) -> Result<Option<MultiplexedConnection>, Failure> {
        let Some(url) = &self.redis else { return Ok(None) };
        // A thousand tasks on a small machine may keep one another waiting for longer than the usual half second.
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let client = redis::Client::open(url.as_str())?;
        Ok(Some(
            client.get_multiplexed_async_connection_with_config(&patient).await?,
        ))
    }
}

fn unique() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("example-{}-{:x}", std::process::id(), since_epoch.as_nanos())
}
