use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, mode = "read", lock_delay_s = 5)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
