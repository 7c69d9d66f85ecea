use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = (id, ratio))]
async fn f(id: u64, ratio: f64) -> Result<u64, LockError> {
    let _ = ratio;
    Ok(id)
}

fn main() {}
