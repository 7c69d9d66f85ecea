use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, linger_ms = 500, linger = "500ms")]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
