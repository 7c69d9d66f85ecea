//! [`Server`]: a redis-server of our own, for as long as the story runs.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::Failure;

/// What to tell a user who has no server.
const NO_SERVER: &str = "this needs a Redis server: pass --redis URL, or put a redis-server on the PATH \
    (apt install redis-server, brew install redis; or docker run -p 6379:6379 redis, then --redis redis://127.0.0.1:6379)";

/// A redis-server on a free port of 127.0.0.1, in a folder of its own; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    // Dropped, hence killed, before the folder that it runs in.
    process: Child,
    _folder: TempDir,
}

impl Server {
    /// Starts one from the PATH and waits until it answers.
    pub(crate) async fn start() -> Result<Self, Failure> {
        // Between finding a free port and using it another program may take it: then the server ends at once, and
        // the next port is tried.
        for _ in 0..3 {
            if let Some(server) = Self::try_start().await? {
                return Ok(server);
            }
        }
        Err("the redis-server on the PATH does not start".into())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }

    async fn try_start() -> Result<Option<Self>, Failure> {
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let url = format!("redis://127.0.0.1:{port}");
        let mut process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &port.to_string()])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => Failure::from(NO_SERVER),
                _ => error.into(),
            })?;

        let client = redis::Client::open(url.as_str())?;
        while process.try_wait()?.is_none() {
            if client.get_multiplexed_async_connection().await.is_ok() {
                return Ok(Some(Self { url, process, _folder: folder }));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(None)
    }
}
