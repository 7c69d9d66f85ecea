//! [`Wire`]: a connection for locks that take only a few lines to implement.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};
use tokio::sync::Mutex;
use tokio::time::timeout;

use history::Failure;

/// The time limit of one command.
const PATIENCE: Duration = Duration::from_millis(300);

/// A connection that reconnects after any error.
#[derive(Debug)]
pub struct Wire {
    client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Wire {
    /// For the server at `url`; connects with the first command.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a readable URL");
        Self { client, connection: Mutex::default() }
    }

    /// Runs a command, which may have been executed anyway if this fails.
    ///
    /// # Errors
    ///
    /// `Unreachable`, also if the server replied with an error.
    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        let asked = timeout(PATIENCE, async {
            let mut connection = self.connection().await?;
            command.query_async::<T>(&mut connection).await
        });
        let text = match asked.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if let Ok(mut connection) = self.connection.try_lock() {
            *connection = None;
        }
        Err(Failure::Unreachable(text))
    }

    async fn connection(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(made) = connection.as_ref() {
            return Ok(made.clone());
        }
        let made = self.client.get_multiplexed_async_connection().await?;
        *connection = Some(made.clone());
        Ok(made)
    }
}
