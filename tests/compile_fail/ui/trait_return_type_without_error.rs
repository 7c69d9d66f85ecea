use lock_runtime::cache_lock;

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop", key = id)]
    async fn buy(&self, id: u64) -> u64;
}

fn main() {}
