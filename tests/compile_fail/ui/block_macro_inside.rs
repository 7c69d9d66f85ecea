use lock_runtime::{LockError, cache_lock};

macro_rules! more_fns {
    () => {
        #[cache_lock(key = id)]
        pub async fn pay(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }
    };
}

struct Shop;

#[cache_lock(prefix = "shop")]
impl Shop {
    #[cache_lock(key = id)]
    pub async fn buy(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    more_fns!();
}

fn main() {}
