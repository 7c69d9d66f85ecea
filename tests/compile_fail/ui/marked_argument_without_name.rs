use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order")]
async fn f(#[locked_object] _: u64) -> Result<u64, LockError> {
    Ok(1)
}

fn main() {}
