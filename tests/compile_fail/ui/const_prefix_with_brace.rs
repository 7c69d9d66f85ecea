use lock_runtime::{LockError, cache_lock};

mod names {
    pub const ORDER: &str = "{order}";
}

#[cache_lock(prefix = names::ORDER, key = id)]
async fn f(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
