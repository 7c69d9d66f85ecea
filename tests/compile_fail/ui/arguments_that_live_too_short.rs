use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = id)]
fn f(id: &u64) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, LockError>>>> {
    let id = *id;
    Box::pin(async move { Ok(id) })
}

fn main() {}
