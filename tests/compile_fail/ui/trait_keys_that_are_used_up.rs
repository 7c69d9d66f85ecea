use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop", keys = ids)]
    async fn buy(&self, ids: impl Iterator<Item = u64>) -> Result<u64, LockError>;
}

fn main() {}
