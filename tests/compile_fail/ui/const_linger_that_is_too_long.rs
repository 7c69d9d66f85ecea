use lock_runtime::{LockError, cache_lock};

const LINGER: u64 = 3;

#[cache_lock(key = id, linger_s = LINGER)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
