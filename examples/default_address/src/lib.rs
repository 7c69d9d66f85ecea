//! The address book of the story, in SQLite or Postgres. It knows nothing of locks.

use std::path::Path;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Connection, Executor};

/// Addresses of users. Nothing in the schema says that a user has only one default: that is the application's rule,
/// as in many a schema that grew.
#[derive(Clone, Debug)]
pub struct AddressBook {
    pool: AnyPool,
}

const SCHEMA: [&str; 2] = [
    "CREATE TABLE addresses (user_id BIGINT NOT NULL, address TEXT NOT NULL, is_default INTEGER NOT NULL)",
    "CREATE TABLE changes (user_id BIGINT NOT NULL, what TEXT NOT NULL)",
];

impl AddressBook {
    /// The URL of a new SQLite file in this folder.
    #[must_use]
    pub fn sqlite_url(folder: &Path) -> String {
        format!("sqlite://{}/addresses.sqlite?mode=rwc", folder.display())
    }

    /// What is at this URL, in words.
    #[must_use]
    pub fn kind(url: &str) -> &'static str {
        if is_sqlite(url) {
            "a SQLite file"
        } else {
            "the database that DATABASE_URL names"
        }
    }

    /// Makes the tables of a run. On Postgres they are in a schema of their own, so that runs don't meet and nothing
    /// of them stays.
    ///
    /// # Errors
    ///
    /// When the database can't be reached or doesn't like the statements.
    pub async fn create(url: &str, run: &str) -> sqlx::Result<()> {
        let mut connection = connect(url).await?;
        if !is_sqlite(url) {
            connection
                .execute(AssertSqlSafe(format!("CREATE SCHEMA \"{run}\"")))
                .await?;
        }
        prepare(&mut connection, url, run).await?;
        for table in SCHEMA {
            connection.execute(table).await?;
        }
        connection.close().await
    }

    /// Opens the tables of a run.
    ///
    /// # Errors
    ///
    /// When the database can't be reached.
    pub async fn open(url: &str, run: &str) -> sqlx::Result<Self> {
        sqlx::any::install_default_drivers();
        let (for_connections, run) = (url.to_owned(), run.to_owned());
        let pool = AnyPoolOptions::new()
            .max_connections(8)
            .after_connect(move |connection, _| {
                let (url, run) = (for_connections.clone(), run.clone());
                Box::pin(async move { prepare(connection, &url, &run).await })
            })
            .connect(url)
            .await?;
        Ok(Self { pool })
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Removes what [`create`](Self::create) made. A SQLite file goes with its folder.
    ///
    /// # Errors
    ///
    /// When the database can't be reached.
    pub async fn remove(url: &str, run: &str) -> sqlx::Result<()> {
        if is_sqlite(url) {
            return Ok(());
        }
        let mut connection = connect(url).await?;
        connection
            .execute(AssertSqlSafe(format!("DROP SCHEMA \"{run}\" CASCADE")))
            .await?;
        connection.close().await
    }

    /// How many addresses the user has.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn count(&self, user: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar("SELECT COUNT(*) FROM addresses WHERE user_id = $1")
            .bind(user)
            .fetch_one(&self.pool)
            .await
    }

    /// How many default addresses the user has.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn count_defaults(&self, user: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar("SELECT COUNT(*) FROM addresses WHERE user_id = $1 AND is_default = 1")
            .bind(user)
            .fetch_one(&self.pool)
            .await
    }

    /// Adds an address and notes the change: both or neither. They are committed when this returns.
    ///
    /// # Errors
    ///
    /// When the database fails; nothing was added then.
    pub async fn add(&self, user: i64, address: &str, is_default: bool) -> sqlx::Result<()> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("INSERT INTO addresses (user_id, address, is_default) VALUES ($1, $2, $3)")
            .bind(user)
            .bind(address)
            .bind(i32::from(is_default))
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO changes (user_id, what) VALUES ($1, $2)")
            .bind(user)
            .bind(format!("added {address}"))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
    }
}

fn is_sqlite(url: &str) -> bool {
    url.starts_with("sqlite:")
}

async fn connect(url: &str) -> sqlx::Result<AnyConnection> {
    sqlx::any::install_default_drivers();
    AnyConnection::connect(url).await
}

/// Sets up a new connection.
async fn prepare(connection: &mut AnyConnection, url: &str, run: &str) -> sqlx::Result<()> {
    if is_sqlite(url) {
        // Readers and the one writer don't block each other; a second writer waits instead of failing. Whether a crash
        // of the machine loses the last commits is of no interest here, and hundreds of fsyncs would be slow.
        connection.execute("PRAGMA busy_timeout = 30000").await?;
        connection.execute("PRAGMA journal_mode = WAL").await?;
        connection.execute("PRAGMA synchronous = NORMAL").await?;
    } else {
        connection
            .execute(AssertSqlSafe(format!("SET search_path TO \"{run}\"")))
            .await?;
    }
    Ok(())
}
