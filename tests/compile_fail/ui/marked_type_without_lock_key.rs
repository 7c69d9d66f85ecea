use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order")]
async fn f(#[locked_object] ratio: f64) -> Result<f64, LockError> {
    Ok(ratio)
}

fn main() {}
