//! [`Run`]: one run of a story, with its own namespace, and the place of its locks and numbers.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_runtime::LockManager;
use redis::aio::MultiplexedConnection;

use crate::server::Server;
use crate::{Failure, Ledger, Options, Queue, Report, report::conclude};

/// One run of a story, over all its processes.
#[derive(Debug)]
pub struct Run {
    /// Keeps runs apart that share a Redis, and says which keys to delete at the end.
    namespace: String,
    /// `None` if everything is in this process.
    redis: Option<String>,
    /// The server, if it was started for this run.
    server: Option<Server>,
}

/// Runs a story, from starting the server that it needs to printing its result table; the exit status is 1 if the result is
/// wrong or unknown.
pub async fn tell(options: &Options, story: impl AsyncFnOnce(&Run, &Options) -> Result<Report, Failure>) -> ExitCode {
    conclude(begin_and_end(options, story).await)
}

async fn begin_and_end(
    options: &Options,
    story: impl AsyncFnOnce(&Run, &Options) -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    let run = Run::begin(options).await?;
    let report = story(&run, options).await;
    let ended = if options.is_child() { Ok(()) } else { run.end().await };
    // An error of the story is more important than one of the cleanup.
    report.and_then(|report| ended.map(|()| report))
}

impl Run {
    /// Everything is in this process, unless a server was named or several processes share the tasks.
    async fn begin(options: &Options) -> Result<Self, Failure> {
        let server = match &options.redis {
            None if options.processes > 1 => Some(Server::start().await?),
            _ => None,
        };
        let started = server.as_ref().map(|server| server.url().to_owned());
        Ok(Self {
            namespace: options.namespace.clone().unwrap_or_else(unique),
            redis: options.redis.clone().or(started),
            server,
        })
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

    /// This run's queue of jobs.
    ///
    /// # Errors
    ///
    /// When there is no server, or it can't be reached.
    pub async fn queue(&self) -> Result<Queue, Failure> {
        let connection = self.connection().await?.ok_or("a queue takes a Redis server: leave --processes out")?;
        Ok(Queue::new(connection, &self.namespace))
    }

    /// With or without the lock, in how many processes, and where everything is: the second line of every story.
    #[must_use]
    pub fn circumstances(&self, options: &Options) -> String {
        let lock = if options.no_lock { "WITHOUT the lock" } else { "With the lock" };
        let processes = match options.processes {
            1 => "in this process".to_owned(),
            several => format!("in {several} processes"),
        };
        let place = match (&self.redis, &self.server) {
            (None, _) => "in memory",
            (Some(_), None) => "on the Redis server that you named",
            (Some(_), Some(_)) => "on a Redis server started for this run",
        };
        format!("{lock}, {processes}, {place}.")
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

    /// Removes everything of this run.
    async fn end(self) -> Result<(), Failure> {
        match self.server {
            Some(server) => server.stop().await,
            None => self.delete_keys().await,
        }
    }

    async fn delete_keys(&self) -> Result<(), Failure> {
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

    /// The server that child processes are to use.
    pub(crate) fn redis(&self) -> Option<&str> {
        self.redis.as_deref()
    }

    async fn connection(&self) -> Result<Option<MultiplexedConnection>, Failure> {
        let Some(url) = &self.redis else { return Ok(None) };
        // On a small machine a thousand tasks may keep each other waiting for longer than the usual half second.
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let client = redis::Client::open(url.as_str())?;
        Ok(Some(client.get_multiplexed_async_connection_with_config(&patient).await?))
    }
}

fn unique() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("example-{}-{:x}", std::process::id(), since_epoch.as_nanos())
}
