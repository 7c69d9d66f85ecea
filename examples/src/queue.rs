//! [`Queue`]: jobs in Redis lists, each delivered at least once.

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::Failure;

/// A queue of jobs. A job stays in its worker's list until it is done, so that it can be put back when the worker dies.
#[derive(Clone, Debug)]
pub struct Queue {
    connection: MultiplexedConnection,
    namespace: String,
}

impl Queue {
    pub(crate) fn new(connection: MultiplexedConnection, namespace: &str) -> Self {
        Self { connection, namespace: namespace.to_owned() }
    }

    /// Adds a job at the end.
    ///
    /// # Errors
    ///
    /// When Redis can't be asked.
    pub async fn push(&mut self, job: &str) -> Result<(), Failure> {
        let waiting = self.waiting();
        Ok(self.connection.rpush(waiting, job).await?)
    }

    /// Takes the first job, or `None` if there is none for this long. Each worker needs its own connection, which this keeps busy.
    ///
    /// # Errors
    ///
    /// When Redis can't be asked.
    pub async fn take(&mut self, worker: u32, patience: Duration) -> Result<Option<String>, Failure> {
        let mut take = redis::cmd("BLMOVE");
        take.arg(self.waiting()).arg(self.taken_by(worker)).arg("LEFT").arg("RIGHT").arg(patience.as_secs_f64());
        Ok(take.query_async(&mut self.connection).await?)
    }

    /// Records that the worker has done a job.
    ///
    /// # Errors
    ///
    /// When Redis can't be asked.
    pub async fn finish(&mut self, worker: u32, job: &str) -> Result<(), Failure> {
        let taken = self.taken_by(worker);
        Ok(self.connection.lrem(taken, 1, job).await?)
    }

    /// Puts the job of a dead worker back: it is delivered once more.
    ///
    /// # Errors
    ///
    /// When Redis can't be asked.
    pub async fn put_back(&mut self, worker: u32) -> Result<(), Failure> {
        let mut put_back = redis::cmd("LMOVE");
        put_back.arg(self.taken_by(worker)).arg(self.waiting()).arg("LEFT").arg("LEFT");
        Ok(put_back.query_async(&mut self.connection).await?)
    }

    fn waiting(&self) -> String {
        format!("{}:jobs", self.namespace)
    }

    fn taken_by(&self, worker: u32) -> String {
        format!("{}:jobs:{worker}", self.namespace)
    }
}
