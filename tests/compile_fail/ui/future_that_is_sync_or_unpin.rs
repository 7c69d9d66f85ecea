use lock_runtime::{LockError, cache_lock};
use std::pin::Pin;

#[cache_lock(prefix = "p", key = id)]
fn boxed(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send + Sync>> {
    Box::pin(async move { Ok(id) })
}

#[cache_lock(prefix = "p", key = id)]
fn unpin(id: u64) -> impl Future<Output = Result<u64, LockError>> + Unpin {
    std::future::ready(Ok(id))
}

fn main() {
    drop(boxed(1));
    drop(unpin(1));
}
