use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop", key = a)]
    async fn buy(&self, (a, b): (u64, u64)) -> Result<u64, LockError> {
        Ok(a + b)
    }
}

fn main() {}
