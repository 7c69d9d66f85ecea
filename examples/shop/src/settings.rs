//! [`Settings`]: the service's configuration from the environment.

use std::str::FromStr;
use std::time::Duration;

use crate::StartFailure;

/// What the service reads from the environment at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `HOST`: the address to listen on. By default 127.0.0.1: the page and the metrics are not for everybody.
    pub host: String,
    /// `PORT`: by default 3000. With 0 the system chooses a free port, which the service prints when it listens.
    pub port: u16,
    /// `DATABASE_URL`: Postgres, or a SQLite file. By default SQLite in a temporary file, which ends with the service.
    pub database_url: Option<String>,
    /// `REDIS_URL`: any address that the builder of the locks takes. By default the locks are in memory.
    pub redis_url: String,
    /// `SHOP_STOCK`: the stock of each item, if the items are not in the database yet. By default 100.
    pub stock: i64,
    /// `SHOP_WORK_MS`: how long the shop asks others (for a price, for the money) between its read and its write. By default 2 ms.
    pub work: Duration,
    /// Whether buying and paying take locks. `SHOP_NO_LOCK=1` shows what happens without locks.
    pub is_locked: bool,
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// When a number is not a number.
    pub fn from_env() -> Result<Self, StartFailure> {
        Ok(Self {
            host: text("HOST").unwrap_or_else(|| "127.0.0.1".to_owned()),
            port: number("PORT", 3000)?,
            database_url: text("DATABASE_URL"),
            redis_url: text("REDIS_URL").unwrap_or_else(|| "memory://".to_owned()),
            stock: number("SHOP_STOCK", 100)?,
            work: Duration::from_millis(number("SHOP_WORK_MS", 2)?),
            is_locked: text("SHOP_NO_LOCK").is_none(),
        })
    }
}

/// An empty variable counts as none.
fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn number<N: FromStr>(name: &str, default: N) -> Result<N, StartFailure> {
    match text(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{name} must be a number, and is `{text}`").into()),
    }
}
