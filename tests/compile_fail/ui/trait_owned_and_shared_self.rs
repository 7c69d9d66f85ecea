use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "shop", key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;
    async fn close(self);
    fn change(&mut self);
    async fn share_here(self: std::rc::Rc<Self>);
    async fn share(self: std::sync::Arc<Self>);
}

fn main() {}
