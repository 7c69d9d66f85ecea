use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order")]
async fn f(#[locked_object] (a, b): (u64, u64)) -> Result<u64, LockError> {
    Ok(a + b)
}

fn main() {}
