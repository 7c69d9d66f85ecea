use std::pin::Pin;

use lock_runtime::{LockError, cache_lock};

trait Stream {
    type Item;
}

#[cache_lock(prefix = "order", key = id)]
async fn later(id: u64) -> Result<impl Future<Output = u64>, LockError> {
    Ok(async move { id })
}

#[cache_lock(prefix = "order", key = id)]
fn boxed(id: u64) -> Result<Pin<Box<dyn Future<Output = u64> + Send>>, LockError> {
    Ok(Box::pin(async move { id }))
}

#[cache_lock(prefix = "order", key = id)]
fn stream(id: u64) -> impl Future<Output = Result<Box<dyn Stream<Item = u64>>, LockError>> {
    async move { todo!("{id}") }
}

fn main() {}
