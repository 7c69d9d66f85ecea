use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id)]
async fn f(id: &str) -> Result<u64, LockError> {
    let id: u64 = id.parse()?;
    Ok(id)
}

fn main() {}
