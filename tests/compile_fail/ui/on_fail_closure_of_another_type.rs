use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, on_fail = |err| match err {
    LockError::Timeout { .. } => Ok("busy"),
    err => Err(err),
})]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[cache_lock(key = id, on_fail = |_| 0)]
fn on_a_thread(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
