//! [`AddressBook`]: the queries.

use sqlx::AnyPool;

/// Addresses of users. Nothing in the schema says that a user has only one default: that is the application's rule,
/// as in many a schema that grew.
#[derive(Clone, Debug)]
pub struct AddressBook {
    pool: AnyPool,
}

impl AddressBook {
    /// Its tables.
    pub const SCHEMA: [&str; 2] = [
        "CREATE TABLE addresses (user_id BIGINT NOT NULL, address TEXT NOT NULL, is_default INTEGER NOT NULL)",
        "CREATE TABLE changes (user_id BIGINT NOT NULL, what TEXT NOT NULL)",
    ];

    /// The address book in these tables.
    #[must_use]
    pub fn new(pool: AnyPool) -> Self {
        Self { pool }
    }

    /// How many addresses the user has.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn count(&self, user: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar("SELECT COUNT(*) FROM addresses WHERE user_id = $1").bind(user).fetch_one(&self.pool).await
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

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
