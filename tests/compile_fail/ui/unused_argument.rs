#![deny(unused_variables)]

use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order", key = id)]
async fn only_the_key_is_used(id: u64, user: &str) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "order", key = id)]
fn on_a_thread(id: u64, mut amount: u64) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "order", key = id)]
fn with_a_future(id: u64, amount: u64) -> impl Future<Output = Result<u64, LockError>> {
    async move { Ok(id) }
}

fn main() {}
