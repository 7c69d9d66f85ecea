use lock_runtime::{LockError, cache_lock};

struct Shop;

#[cache_lock(prefix = "shop")]
impl Shop {
    #[cache_lock]
    async fn buy(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
