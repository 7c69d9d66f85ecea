use lock_runtime::{LockError, cache_lock};

#[tokio::main(flavor = "current_thread")]
#[cache_lock(key = "all")]
async fn main() -> Result<(), LockError> {
    Ok(())
}
