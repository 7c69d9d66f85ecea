use lock_runtime::{LockError, cache_lock};

const PERMITS: u32 = 0;

#[cache_lock(key = id, permits = PERMITS)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
