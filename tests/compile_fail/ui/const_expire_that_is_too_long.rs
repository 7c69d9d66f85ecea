use lock_runtime::{LockError, cache_lock};

const EXPIRE: u64 = 1_000_000_000;

#[cache_lock(key = id, expire_s = EXPIRE)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
