use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = name, key = "all")]
async fn f(name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

fn main() {}
