use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = "{type}")]
async fn f(r#type: u64) -> Result<u64, LockError> {
    Ok(r#type)
}

fn main() {
    drop(f(1));
}
