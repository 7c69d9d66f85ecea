use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id)]
async fn f(id: u64) -> Result<u64, LockError> {
    let _ = (__options, __manager, __held);
    Ok(id)
}

fn main() {}
