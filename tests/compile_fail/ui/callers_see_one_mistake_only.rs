use lock_runtime::{LockError, cache_lock};

#[cache_lock(timeout_ms = 5)]
async fn f(#[locked_object(id)] id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn caller() -> Result<u64, LockError> {
    f(1).await
}

fn main() {
    let _ = caller();
}
