use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, max_hold = "5s", max_hold_ms = 5000)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
