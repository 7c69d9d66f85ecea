//! [`Shop`]: what all parts of the service share.

use std::time::Duration;

use lock_runtime::LockManager;

use crate::{Database, Failure, Receipt, Settings, StartFailure};

/// A server that has been away for this long is reported at once. Without it each request in an outage would hang for its timeout.
const FAIL_FAST: Duration = Duration::from_millis(500);

/// The locks, the database, and how the shop works.
#[derive(Debug)]
pub struct Shop {
    /// Where the locks are.
    pub locks: LockManager,
    /// The tables.
    pub database: Database,
    pub(crate) work: Duration,
    is_locked: bool,
}

impl Shop {
    /// Opens the database, and makes the locks. The service starts without the server of its locks: `/ready` says so.
    ///
    /// # Errors
    ///
    /// When the database can't be reached, or an address is wrong.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is locked.
    pub async fn open(settings: &Settings) -> Result<Self, StartFailure> {
        let locks =
            LockManager::builder().url(&settings.redis_url).namespace("shop").fail_fast(FAIL_FAST).connect_lazy()?;
        // Connects in the background, so that the first customer need not wait for it.
        let _ = locks.is_connected();
        let database = Database::open(settings.database_url.as_deref(), settings.stock).await?;
        Ok(Self::new(locks, database, settings))
    }

    /// A shop with these locks and tables: for tests.
    #[must_use]
    pub fn new(locks: LockManager, database: Database, settings: &Settings) -> Self {
        Self { locks, database, work: settings.work, is_locked: settings.is_locked }
    }

    /// Sells one piece of an item. Returns the order, which has to be paid.
    ///
    /// # Errors
    ///
    /// When there is no such item, none is left, or the item could not be locked.
    ///
    /// # Cancel safety
    ///
    /// The sale is made or not: both the stock and the order, or neither.
    #[tracing::instrument(skip(self))]
    pub async fn buy(&self, item: i64) -> Result<Receipt, Failure> {
        if self.is_locked { self.buy_locked(item).await } else { self.buy_unlocked(item).await }
    }

    /// Takes the money for an order, once.
    ///
    /// # Errors
    ///
    /// When there is no such order, or the order could not be locked.
    ///
    /// # Cancel safety
    ///
    /// The order is paid or not. Another call pays an order that is not paid.
    #[tracing::instrument(skip(self))]
    pub async fn pay(&self, order: i64) -> Result<crate::Payment, Failure> {
        if self.is_locked { self.pay_locked(order).await } else { self.pay_unlocked(order).await }
    }

    /// Waits as long as asking others takes, for a price, or for the money.
    pub(crate) async fn ask_others(&self) {
        tokio::time::sleep(self.work).await;
    }
}
