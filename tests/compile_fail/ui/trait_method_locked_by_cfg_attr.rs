use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cfg_attr(not(test), cache_lock(key = id))]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
