use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop: Sized {
    #[cache_lock(key = "all")]
    async fn close(self) -> Result<Self, (Self, LockError)>;

    #[cache_lock(key = "all")]
    fn sell_to<B: From<Self>>(self) -> Result<B, LockError>;
}

fn main() {}
