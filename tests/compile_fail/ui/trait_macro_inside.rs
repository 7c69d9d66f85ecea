use lock_runtime::{LockError, cache_lock};

macro_rules! more_methods {
    () => {
        async fn pay(&self, id: u64) -> u64;
    };
}

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop", key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
    more_methods!();
}

fn main() {}
