use lock_runtime::{LockError, cache_lock};

struct Shop;

#[cache_lock(prefix = "shop")]
impl Shop {
    #[cfg_attr(not(test), cache_lock(key = id))]
    pub async fn buy(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
