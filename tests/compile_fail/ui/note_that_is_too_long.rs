use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, note = "An essay of more than one hundred and twenty-eight bytes about who needs this lock, since when, for how long, and what the weather was.")]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
