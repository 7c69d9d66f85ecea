use lock_runtime::{LockError, cache_lock};

trait Shop {
    #[cache_lock(key = id)]
    fn buy(&self, id: u64) -> impl Future<Output = Result<u64, LockError>>;
}

fn main() {}
