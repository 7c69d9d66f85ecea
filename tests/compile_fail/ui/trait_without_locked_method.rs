use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    async fn stock(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
