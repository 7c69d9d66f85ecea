use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = ratio)]
async fn f(ratio: f64) -> Result<f64, LockError> {
    Ok(ratio)
}

fn main() {}
