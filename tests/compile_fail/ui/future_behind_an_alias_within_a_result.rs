use lock_runtime::{LockError, cache_lock};
use tokio::task::JoinHandle;

#[cache_lock(prefix = "order", key = id)]
fn spawned(id: u64) -> Result<JoinHandle<u64>, LockError> {
    Ok(tokio::spawn(async move { id }))
}

fn main() {}
