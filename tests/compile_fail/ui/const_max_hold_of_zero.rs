use std::time::Duration;

use lock_runtime::{LockError, cache_lock};

const MAX_HOLD: Duration = Duration::ZERO;

#[cache_lock(key = id, max_hold = MAX_HOLD)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
