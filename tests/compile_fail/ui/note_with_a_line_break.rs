use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, note = "for ada\nand ben")]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
