use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "a" key = id)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
