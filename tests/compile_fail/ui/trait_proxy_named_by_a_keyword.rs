use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = crate)]
trait Shop {
    #[cache_lock(prefix = "shop", key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
