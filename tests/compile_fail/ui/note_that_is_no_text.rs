use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, note = id)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[cache_lock(key = id, note = 7)]
async fn g(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
