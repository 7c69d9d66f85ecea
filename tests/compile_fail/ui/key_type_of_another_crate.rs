use std::time::SystemTime;

use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "report", key = day)]
async fn report(day: SystemTime) -> Result<SystemTime, LockError> {
    Ok(day)
}

fn main() {}
