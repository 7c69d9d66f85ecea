use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop")]
    async fn buy(#[locked_complex_object(field = "id")] &self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
