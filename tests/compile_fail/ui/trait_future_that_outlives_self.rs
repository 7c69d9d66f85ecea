use std::pin::Pin;

use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(key = id)]
    fn boxed(&self, id: u64) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>;

    #[cache_lock(key = id)]
    fn hidden(&self, id: u64) -> impl Future<Output = Result<(), LockError>> + 'static;
}

fn main() {}
