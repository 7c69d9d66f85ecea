use lock_runtime::{LockError, cache_lock};

#[cache_lock(prox = LockedShop, shards = 4)]
trait Shop {
    #[cache_lock(prefix = "shop", key = "{id}")]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
    #[cache_lock(guard = guard)]
    async fn pay(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
