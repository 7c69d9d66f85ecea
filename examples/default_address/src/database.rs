//! [`Database`]: where a run's tables are, and how a connection to them is set up.

use std::fmt;
use std::path::PathBuf;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Connection, Executor};

/// How many connections a process opens.
const CONNECTIONS: u32 = 8;

/// The tables of one run, separate from those of any other.
#[derive(Clone, Debug)]
pub struct Database {
    url: String,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// A folder for the file, and for the two that SQLite puts next to it.
    Sqlite { folder: PathBuf },
    /// A schema in the database that `DATABASE_URL` names.
    Postgres { schema: String },
}

impl Database {
    /// Chooses the same for every process of a run: Postgres if `DATABASE_URL` names one, else a SQLite file.
    ///
    /// # Errors
    ///
    /// When `DATABASE_URL` names something else.
    pub fn of_run(run: &str) -> sqlx::Result<Self> {
        sqlx::any::install_default_drivers();
        match std::env::var("DATABASE_URL") {
            Ok(url) if url.starts_with("postgres") => {
                Ok(Self { url, place: Place::Postgres { schema: run.to_owned() } })
            }
            Ok(_) => {
                Err(sqlx::Error::Configuration("DATABASE_URL is for Postgres; without it this runs on SQLite".into()))
            }
            Err(_) => {
                let folder = std::env::temp_dir().join(run);
                Ok(Self {
                    url: format!("sqlite://{}/story.sqlite?mode=rwc", folder.display()),
                    place: Place::Sqlite { folder },
                })
            }
        }
    }

    /// Makes the tables of a `schema`.
    ///
    /// # Errors
    ///
    /// When the database can't be reached or refuses.
    pub async fn create(&self, schema: &[&'static str]) -> sqlx::Result<()> {
        if let Place::Sqlite { folder } = &self.place {
            std::fs::create_dir(folder)?;
        }
        let mut connection = AnyConnection::connect(&self.url).await?;
        if let Place::Postgres { schema } = &self.place {
            connection.execute(AssertSqlSafe(format!("CREATE SCHEMA \"{schema}\""))).await?;
        }
        self.place.set_up(&mut connection).await?;
        for table in schema {
            connection.execute(*table).await?;
        }
        connection.close().await
    }

    /// Opens the tables.
    ///
    /// # Errors
    ///
    /// When the database can't be reached.
    pub async fn open(&self) -> sqlx::Result<AnyPool> {
        let place = self.place.clone();
        AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .after_connect(move |connection, _| {
                let place = place.clone();
                Box::pin(async move { place.set_up(connection).await })
            })
            .connect(&self.url)
            .await
    }

    /// Removes what [`create`](Self::create) made.
    ///
    /// # Errors
    ///
    /// When the database can't be reached.
    pub async fn remove(&self) -> sqlx::Result<()> {
        match &self.place {
            Place::Sqlite { folder } => Ok(std::fs::remove_dir_all(folder)?),
            Place::Postgres { schema } => {
                let mut connection = AnyConnection::connect(&self.url).await?;
                connection.execute(AssertSqlSafe(format!("DROP SCHEMA \"{schema}\" CASCADE"))).await?;
                connection.close().await
            }
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.place {
            Place::Sqlite { .. } => "a SQLite file",
            Place::Postgres { .. } => "the Postgres database that you named",
        })
    }
}

impl Place {
    async fn set_up(&self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        match self {
            Self::Sqlite { .. } => {
                // A second writer waits instead of failing. This comes first, because the switch to WAL may have to wait, too.
                connection.execute("PRAGMA busy_timeout = 30000").await?;
                // Readers don't wait for the writer.
                connection.execute("PRAGMA journal_mode = WAL").await?;
                // A power failure is of no interest here, and an fsync per change would be slow.
                connection.execute("PRAGMA synchronous = NORMAL").await?;
            }
            Self::Postgres { schema } => {
                connection.execute(AssertSqlSafe(format!("SET search_path TO \"{schema}\""))).await?;
            }
        }
        Ok(())
    }
}
