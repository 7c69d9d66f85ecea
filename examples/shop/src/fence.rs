//! The purpose of the fencing tokens in this shop.
//!
//! A lock can be lost while its holder still works. Instance A has read that one lamp is left, under token 10. Redis restarts
//! without its data, and instance B gets the lamp's lock, under token 11. Then there are two holders.
//!
//! 1. **A holder raises the fence before it reads** ([`claim`]). A holder with a smaller token is refused here.
//! 2. **A holder writes only if the fence is still its own** (`WHERE fence = token`). When B has raised the fence to 11, the
//!    write of A finds 11 and not 10, and changes nothing.
//!
//! The first step is needed because a sale reads first, and its write depends on the read. If only a write raised the fence, A could
//! write after B has read, and then B would write a result of the old number: one lamp too many is sold. A write that does not
//! depend on a read needs the second step only, with `<=`.

use lock_runtime::FencingToken;
use sqlx::{Any, Transaction};

use crate::Failure;

/// A table whose rows have a fence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fenced {
    Item,
    Order,
}

/// Raises the fence of a row to this token. The next write may depend on what is read after this, in the same transaction. Returns the
/// token as the database has it.
pub(crate) async fn claim(
    transaction: &mut Transaction<'_, Any>,
    table: Fenced,
    id: i64,
    token: FencingToken,
) -> Result<i64, Failure> {
    let (raise, look) = match table {
        Fenced::Item => {
            ("UPDATE items SET fence = $1 WHERE id = $2 AND fence <= $1", "SELECT COUNT(*) FROM items WHERE id = $1")
        }
        Fenced::Order => {
            ("UPDATE orders SET fence = $1 WHERE id = $2 AND fence <= $1", "SELECT COUNT(*) FROM orders WHERE id = $1")
        }
    };
    let token = i64::from(token);
    let raised = sqlx::query(raise).bind(token).bind(id).execute(&mut **transaction).await?;
    if raised.rows_affected() == 1 {
        return Ok(token);
    }
    let rows: i64 = sqlx::query_scalar(look).bind(id).fetch_one(&mut **transaction).await?;
    Err(if rows == 0 { Failure::NotFound } else { Failure::Fenced })
}
