use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "shop", key = id, proxy = LockedBuy)]
async fn buy(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
