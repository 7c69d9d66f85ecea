//! The same sale and payment without a lock, for `load --no-lock`. Each is correct only if nobody else does it at the same
//! time.

use crate::sale::add_order;
use crate::{Failure, Payment, Receipt, Shop};

impl Shop {
    pub(crate) async fn buy_unlocked(&self, item: i64) -> Result<Receipt, Failure> {
        let stock = "SELECT stock FROM items WHERE id = $1";
        let stock: Option<i64> = sqlx::query_scalar(stock).bind(item).fetch_optional(self.database.pool()).await?;
        let stock = stock.ok_or(Failure::NotFound)?;
        if stock < 1 {
            return Err(Failure::SoldOut);
        }
        self.ask_others().await;
        let mut transaction = self.database.pool().begin().await?;
        let write = "UPDATE items SET stock = $1 WHERE id = $2";
        sqlx::query(write).bind(stock - 1).bind(item).execute(&mut *transaction).await?;
        let receipt = add_order(&mut transaction, item).await?;
        transaction.commit().await?;
        Ok(receipt)
    }

    pub(crate) async fn pay_unlocked(&self, order: i64) -> Result<Payment, Failure> {
        let paid = "SELECT paid FROM orders WHERE id = $1";
        let paid: Option<i64> = sqlx::query_scalar(paid).bind(order).fetch_optional(self.database.pool()).await?;
        if paid.ok_or(Failure::NotFound)? != 0 {
            return Ok(Payment::MadeBefore);
        }
        self.ask_others().await;
        let mut transaction = self.database.pool().begin().await?;
        sqlx::query("UPDATE orders SET paid = 1 WHERE id = $1").bind(order).execute(&mut *transaction).await?;
        sqlx::query("INSERT INTO payments (order_id) VALUES ($1)").bind(order).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Payment::Made)
    }
}
