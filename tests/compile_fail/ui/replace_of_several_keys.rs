use lock_runtime::{LockError, cache_lock};

#[cache_lock(keys = [id, 2], on_busy = "replace")]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
