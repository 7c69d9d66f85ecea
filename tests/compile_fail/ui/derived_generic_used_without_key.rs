use lock_runtime::{LockError, LockKey, cache_lock};

#[derive(LockKey)]
struct Tagged<T>(T);

#[cache_lock(key = tagged)]
async fn f(tagged: &Tagged<f64>) -> Result<f64, LockError> {
    Ok(tagged.0)
}

fn main() {}
