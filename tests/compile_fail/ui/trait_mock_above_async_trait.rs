use async_trait::async_trait;
// Stands for that of mockall, by its name.
use async_trait::async_trait as automock;
use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop, prefix = "shop")]
#[automock]
#[async_trait]
trait Shop {
    #[cache_lock(key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
