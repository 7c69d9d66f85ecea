use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id, fenced = amount)]
async fn f(id: u64, amount: u64) -> Result<String, LockError> {
    Ok(format!("{id}: {amount}"))
}

fn main() {}
