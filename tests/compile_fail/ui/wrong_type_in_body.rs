use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id)]
async fn f(id: u64) -> Result<u64, LockError> {
    if id == 0 {
        return "zero";
    }
    id
}

fn main() {}
