use lock_runtime::{LockError, cache_lock};

struct Shop;

#[cache_lock(key = id, keys = [id], guard = guard, fenced = token)]
impl Shop {
    #[cache_lock(key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
