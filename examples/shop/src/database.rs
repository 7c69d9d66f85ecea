//! [`Database`]: the connections and the tables. Nothing here knows about locks.

use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyConnection, AnyPool, Executor};
use tempfile::TempDir;

/// How many connections an instance opens.
const CONNECTIONS: u32 = 8;

/// How long a request waits for a connection before it fails.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Nothing in the tables says that stock can't be sold twice, that an order is paid once, or that a user has one default
/// address. These are the shop's rules, as in many a schema that grew. `fence` is the largest fencing token seen.
const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY, name TEXT NOT NULL, at_start BIGINT NOT NULL, \
     stock BIGINT NOT NULL, fence BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, item BIGINT NOT NULL, day BIGINT NOT NULL, \
     paid BIGINT NOT NULL, fence BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS payments (order_id BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS addresses (user_id BIGINT NOT NULL, address TEXT NOT NULL, is_default BIGINT NOT NULL)",
    // A night's key is the last line of defence: if the lock ever fails, the second report of a night fails here.
    "CREATE TABLE IF NOT EXISTS reports (day BIGINT PRIMARY KEY, sold BIGINT NOT NULL, made_by TEXT NOT NULL)",
];

const ITEMS: [(i64, &str); 4] = [(1, "Lamp"), (2, "Chair"), (3, "Kettle"), (4, "Radio")];

/// The shop's tables, in SQLite or in Postgres.
#[derive(Clone, Debug)]
pub struct Database {
    pool: AnyPool,
    /// The folder of a SQLite file that ends with this value.
    _folder: Option<Arc<TempDir>>,
}

/// What the tables say about the sale, for the load to judge.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// How many of all items there were at the start.
    pub at_start: i64,
    /// How many are left.
    pub left: i64,
    /// How many orders there are: each is for one item.
    pub sold: i64,
    /// Orders that were paid more than once.
    pub paid_twice: i64,
    /// Orders that are not paid.
    pub unpaid: Vec<i64>,
    /// All orders.
    pub orders: Vec<i64>,
}

impl Database {
    /// Opens the database of this URL, or a temporary SQLite file, and creates what is missing.
    ///
    /// # Errors
    ///
    /// When the database can't be reached, or refuses.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was created stays, and the next call continues.
    pub async fn open(url: Option<&str>, stock: i64) -> sqlx::Result<Self> {
        sqlx::any::install_default_drivers();
        let (url, folder) = if let Some(url) = url {
            (url.to_owned(), None)
        } else {
            let folder = tempfile::Builder::new().prefix("shop-").tempdir()?;
            (format!("sqlite://{}/shop.sqlite?mode=rwc", folder.path().display()), Some(Arc::new(folder)))
        };
        let is_sqlite = url.starts_with("sqlite:");
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECTION_TIMEOUT)
            .after_connect(move |connection, _| {
                Box::pin(async move { if is_sqlite { set_up_sqlite(connection).await } else { Ok(()) } })
            })
            .connect(&url)
            .await?;
        let database = Self { pool, _folder: folder };
        // Postgres fails one of two instances that create the same table at once. The second try finds it created.
        if database.create(stock).await.is_err() {
            database.create(stock).await?;
        }
        Ok(database)
    }

    pub(crate) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// Closes the connections, when all queries have ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again to continue.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// What the tables say now.
    ///
    /// # Errors
    ///
    /// When the database fails.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn books(&self) -> sqlx::Result<Books> {
        let number = |query: &'static str| sqlx::query_scalar::<_, i64>(query).fetch_one(&self.pool);
        let numbers = |query: &'static str| sqlx::query_scalar::<_, i64>(query).fetch_all(&self.pool);
        let twice =
            "SELECT COUNT(*) FROM (SELECT order_id FROM payments GROUP BY order_id HAVING COUNT(*) > 1) AS twice";
        Ok(Books {
            // Postgres adds BIGINTs to a NUMERIC, which the driver for any database does not know.
            at_start: number("SELECT CAST(SUM(at_start) AS BIGINT) FROM items").await?,
            left: number("SELECT CAST(SUM(stock) AS BIGINT) FROM items").await?,
            sold: number("SELECT COUNT(*) FROM orders").await?,
            paid_twice: number(twice).await?,
            unpaid: numbers("SELECT id FROM orders WHERE paid = 0").await?,
            orders: numbers("SELECT id FROM orders").await?,
        })
    }

    async fn create(&self, stock: i64) -> sqlx::Result<()> {
        for table in TABLES {
            self.pool.execute(table).await?;
        }
        for (id, name) in ITEMS {
            let item = "INSERT INTO items (id, name, at_start, stock, fence) VALUES ($1, $2, $3, $3, 0) ON CONFLICT DO NOTHING";
            sqlx::query(item).bind(id).bind(name).bind(stock).execute(&self.pool).await?;
        }
        Ok(())
    }
}

async fn set_up_sqlite(connection: &mut AnyConnection) -> sqlx::Result<()> {
    // A second writer waits instead of failing. This comes first, because the switch to WAL may have to wait, too.
    connection.execute("PRAGMA busy_timeout = 30000").await?;
    // Readers don't wait for the writer.
    connection.execute("PRAGMA journal_mode = WAL").await?;
    // A crash of the service loses nothing. Only a power failure may lose the last sales of this example.
    connection.execute("PRAGMA synchronous = NORMAL").await?;
    Ok(())
}
