use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop", key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
    #[cache_lock(prefix = "shop")]
    const ITEMS: u64;
}

fn main() {}
