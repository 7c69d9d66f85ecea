//! Payment: an order is paid once, however often the customer presses the button.

use lock_runtime::{FencingToken, cache_lock};
use serde::{Deserialize, Serialize};

use crate::fence::{Fenced, claim};
use crate::{Failure, Shop};

/// The outcome of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payment {
    /// The money was taken now.
    Made,
    /// The order had been paid before. No money was taken.
    MadeBefore,
}

#[cache_lock(prefix = "payment", manager = &self.locks, timeout_s = 5, expire_s = 3)]
impl Shop {
    /// If the instance dies between the bank's answer and the commit, the order stays open, and the next call pays it. A real bank
    /// takes the order's number as its idempotency key, so that the customer does not pay twice then.
    #[cache_lock(key = order, fenced = token)]
    pub(crate) async fn pay_locked(&self, order: i64) -> Result<Payment, Failure> {
        let (is_paid, fence) = self.claim_order(order, token).await?;
        if is_paid {
            return Ok(Payment::MadeBefore);
        }
        self.ask_others().await;
        self.note_payment(order, fence).await
    }

    async fn claim_order(&self, order: i64, token: FencingToken) -> Result<(bool, i64), Failure> {
        let mut transaction = self.database.pool().begin().await?;
        let fence = claim(&mut transaction, Fenced::Order, order, token).await?;
        let paid = "SELECT paid FROM orders WHERE id = $1";
        let paid: i64 = sqlx::query_scalar(paid).bind(order).fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        Ok((paid != 0, fence))
    }

    async fn note_payment(&self, order: i64, fence: i64) -> Result<Payment, Failure> {
        let mut transaction = self.database.pool().begin().await?;
        let write = "UPDATE orders SET paid = 1 WHERE id = $1 AND fence = $2";
        let written = sqlx::query(write).bind(order).bind(fence).execute(&mut *transaction).await?;
        if written.rows_affected() == 0 {
            return Err(Failure::Fenced);
        }
        sqlx::query("INSERT INTO payments (order_id) VALUES ($1)").bind(order).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Payment::Made)
    }
}
