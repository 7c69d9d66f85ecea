use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, timout_ms = 4)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

// The words of other locks.
#[cache_lock(key = id, ttl_ms = 3000, wait = "2000")]
async fn words_of_others(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[cache_lock(key = id, timeout_ms = "2000")]
async fn number_in_quotes(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
