use lock_runtime::{LockError, cache_lock};

type Later<T> = std::pin::Pin<Box<dyn Future<Output = T>>>;

#[cache_lock(key = id, on_fail = |_| Box::pin(std::future::pending()))]
fn f(id: u64) -> Later<Result<u64, LockError>> {
    Box::pin(async move { Ok(id) })
}

fn main() {
    drop(f(1));
}
