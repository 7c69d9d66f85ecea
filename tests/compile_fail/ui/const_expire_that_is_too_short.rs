use lock_runtime::{LockError, cache_lock};

const EXPIRE: u32 = 5;

#[cache_lock(key = id, expire_ms = EXPIRE)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
