//! [`Ledger`]: numbers that are read and written in two separate steps, as in a database without transactions.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::Failure;

/// Named numbers, without any protection against two tasks that both read before either writes: that is the lock's
/// job.
#[derive(Debug)]
pub struct Ledger {
    place: Place,
}

enum Place {
    /// The mutex is held for a single read or write, never from one to the other.
    Memory(Mutex<HashMap<String, i64>>),
    /// Plain `GET` and `SET`.
    Redis { connection: MultiplexedConnection, namespace: String },
}

impl Ledger {
    pub(crate) fn in_memory() -> Self {
        Self { place: Place::Memory(Mutex::default()) }
    }

    pub(crate) fn in_redis(connection: MultiplexedConnection, namespace: &str) -> Self {
        Self { place: Place::Redis { connection, namespace: namespace.to_owned() } }
    }

    /// Reads a number; one that was never written is 0.
    ///
    /// # Errors
    ///
    /// When Redis can't be asked.
    pub async fn read(&self, name: &str) -> Result<i64, Failure> {
        match &self.place {
            Place::Memory(numbers) => {
                let number = numbers.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
                // Others run while the answer is on its way, as with a real database.
                tokio::task::yield_now().await;
                Ok(number.unwrap_or_default())
            }
            Place::Redis { connection, namespace } => {
                let number: Option<i64> = connection.clone().get(format!("{namespace}:{name}")).await?;
                Ok(number.unwrap_or_default())
            }
        }
    }

    /// Writes a number.
    ///
    /// # Errors
    ///
    /// When Redis can't be asked.
    pub async fn write(&self, name: &str, number: i64) -> Result<(), Failure> {
        match &self.place {
            Place::Memory(numbers) => {
                let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
                numbers.insert(name.to_owned(), number);
                Ok(())
            }
            Place::Redis { connection, namespace } => {
                let () = connection.clone().set(format!("{namespace}:{name}"), number).await?;
                Ok(())
            }
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Redis { .. } => "Redis",
        })
    }
}
