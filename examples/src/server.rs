//! [`Server`]: our own redis-server, for as long as the story runs.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::Failure;

/// The message for a user without a server.
const NO_SERVER: &str = "this needs a Redis server: pass --redis URL, or put a redis-server on the PATH \
    (apt install redis-server, brew install redis; or docker run -p 6379:6379 redis, then --redis redis://127.0.0.1:6379)";

/// A redis-server on a free port of 127.0.0.1, in its own folder; killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    url: String,
    port: u16,
    // Dropped, and so killed, before its folder.
    process: Child,
    folder: TempDir,
}

impl Server {
    /// Starts one from the PATH and waits until it answers.
    ///
    /// # Errors
    ///
    /// When there is none, or it does not start.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a server that was started is killed.
    pub async fn start() -> Result<Self, Failure> {
        // Another program may take a free port before it is used. Then the server ends at once, and the next port is
        // tried.
        for _ in 0..3 {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let folder = tempfile::tempdir()?;
            if let Some(process) = launch(port, &folder).await? {
                return Ok(Self { url: url(port), port, process, folder });
            }
        }
        Err("the redis-server on the PATH does not start".into())
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }

    /// Kills the server, as a crash does.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again to wait for the end.
    pub async fn kill(&mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }

    /// Kills the server if it runs, and starts another one on the same port. The new one has no data: nothing was written to
    /// disk.
    ///
    /// # Errors
    ///
    /// When it does not start again.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: afterwards there may be no server.
    pub async fn restart_empty(&mut self) -> Result<(), Failure> {
        self.kill().await?;
        self.process = launch(self.port, &self.folder).await?.ok_or("the redis-server does not start again")?;
        Ok(())
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// A server that answers; `None` when it ended at once.
async fn launch(port: u16, folder: &TempDir) -> Result<Option<Child>, Failure> {
    let mut process = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--port", &port.to_string()])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::from(NO_SERVER),
            _ => error.into(),
        })?;

    let client = redis::Client::open(url(port))?;
    while process.try_wait()?.is_none() {
        if client.get_multiplexed_async_connection().await.is_ok() {
            return Ok(Some(process));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(None)
}
