use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "blob", key = digest)]
async fn f(digest: &[u8]) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
