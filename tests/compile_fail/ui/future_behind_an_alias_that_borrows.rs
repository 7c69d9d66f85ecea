use lock_runtime::{LockError, cache_lock};

type Later<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[cache_lock(key = "all", on_fail = |_| Box::pin(std::future::pending()))]
fn f(id: &u64) -> Later<'_, Result<u64, LockError>> {
    Box::pin(async move { Ok(*id) })
}

fn main() {
    drop(f(&1));
}
