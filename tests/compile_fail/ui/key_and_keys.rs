use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "p", key = from, keys = [from, to])]
async fn f(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
