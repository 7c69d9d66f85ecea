use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "a b", timeout_ms = "2s", shards = 4, on_lost = "ignore")]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
