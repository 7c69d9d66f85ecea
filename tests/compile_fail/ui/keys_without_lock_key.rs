use lock_runtime::{LockError, cache_lock};

#[cache_lock(keys = [1.5, 2.5])]
async fn f(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
