use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, max_hold_s = 60 * 60 * 24 * 366)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
