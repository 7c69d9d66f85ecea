//! The flash sale: one lock per item.

use lock_runtime::{FencingToken, cache_lock};
use serde::{Deserialize, Serialize};
use sqlx::{Any, Transaction};

use crate::day::today;
use crate::fence::{Fenced, claim};
use crate::{Failure, LockProblem, Shop};

/// Browsers read numbers up to 2^53 exactly.
const LARGEST_ORDER: i64 = 1 << 53;

/// What a customer gets for a purchase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of the order, which has to be paid.
    pub order: i64,
    /// The item that was bought.
    pub item: i64,
}

/// A sale takes milliseconds, so a lease of 3 s is plenty: a dead instance blocks its item for no longer. A crowd is usual for
/// an item, so a customer waits for up to 5 s.
#[cache_lock(prefix = "sale", manager = &self.locks, timeout_s = 5, expire_s = 3)]
impl Shop {
    #[cache_lock(key = item, fenced = token, on_fail = |error| Err(Failure::Lock(LockProblem::of_crowd(error))))]
    pub(crate) async fn buy_locked(&self, item: i64) -> Result<Receipt, Failure> {
        let (stock, fence) = self.claim_stock(item, token).await?;
        if stock < 1 {
            return Err(Failure::SoldOut);
        }
        self.ask_others().await;
        self.sell(item, stock - 1, fence).await
    }

    async fn claim_stock(&self, item: i64, token: FencingToken) -> Result<(i64, i64), Failure> {
        let mut transaction = self.database.pool().begin().await?;
        let fence = claim(&mut transaction, Fenced::Item, item, token).await?;
        let stock = "SELECT stock FROM items WHERE id = $1";
        let stock = sqlx::query_scalar(stock).bind(item).fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        Ok((stock, fence))
    }

    /// The lock is held until after the commit: a lock that is released earlier protects nothing.
    async fn sell(&self, item: i64, left: i64, fence: i64) -> Result<Receipt, Failure> {
        let mut transaction = self.database.pool().begin().await?;
        let write = "UPDATE items SET stock = $1 WHERE id = $2 AND fence = $3";
        let written = sqlx::query(write).bind(left).bind(item).bind(fence).execute(&mut *transaction).await?;
        if written.rows_affected() == 0 {
            return Err(Failure::Fenced);
        }
        let receipt = add_order(&mut transaction, item).await?;
        transaction.commit().await?;
        Ok(receipt)
    }
}

pub(crate) async fn add_order(transaction: &mut Transaction<'_, Any>, item: i64) -> Result<Receipt, Failure> {
    let order = fastrand::i64(1..LARGEST_ORDER);
    sqlx::query("INSERT INTO orders (id, item, day, paid, fence) VALUES ($1, $2, $3, 0, 0)")
        .bind(order)
        .bind(item)
        .bind(today())
        .execute(&mut **transaction)
        .await?;
    Ok(Receipt { order, item })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_runtime::{FencingToken, LockManager};

    use crate::{Database, Failure, Settings, Shop};

    /// A has read the stock, and its lock is lost. B gets the lock and reads the stock, too. Only B may write what it has read.
    #[tokio::test]
    async fn a_holder_that_lost_the_lock_can_not_sell_from_what_it_has_read() {
        let mut settings = Settings::from_env().unwrap();
        settings.work = Duration::ZERO;
        let database = Database::open(None, 3).await.unwrap();
        let shop = Shop::new(LockManager::in_memory(), database, &settings);
        let (seen_by_a, a) = shop.claim_stock(1, FencingToken::from(10)).await.unwrap();
        let (seen_by_b, b) = shop.claim_stock(1, FencingToken::from(11)).await.unwrap();
        assert_eq!((seen_by_a, seen_by_b), (3, 3));
        assert!(matches!(shop.sell(1, seen_by_a - 1, a).await, Err(Failure::Fenced)));
        shop.sell(1, seen_by_b - 1, b).await.unwrap();
        assert!(matches!(shop.claim_stock(1, FencingToken::from(10)).await, Err(Failure::Fenced)));
        let books = shop.database.books().await.unwrap();
        assert_eq!((books.sold, books.left), (1, 4 * 3 - 1));
    }
}
