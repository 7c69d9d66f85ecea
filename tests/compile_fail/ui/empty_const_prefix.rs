use lock_runtime::{LockError, cache_lock};

const PREFIX: &str = "";

#[cache_lock(prefix = PREFIX, key = id)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
