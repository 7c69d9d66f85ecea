use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, permits = 5_000_000_000)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
