#![deny(warnings)]

use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order", key = id, shards = 4)]
pub async fn f(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
