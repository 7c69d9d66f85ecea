use async_trait::async_trait;
use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop, prefix = "shop")]
#[cfg_attr(any(), mockall::automock)]
#[async_trait]
trait Shop {
    #[cache_lock(key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
