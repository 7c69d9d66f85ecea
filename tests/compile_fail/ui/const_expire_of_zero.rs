use std::time::Duration;

use lock_runtime::{LockError, cache_lock};

const EXPIRE: Duration = Duration::ZERO;

#[cache_lock(key = id, expire = EXPIRE)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
