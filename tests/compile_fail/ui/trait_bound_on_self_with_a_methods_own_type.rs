use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedExt)]
trait Ext: Future {
    #[cache_lock(prefix = "p", key = 0)]
    fn boxed<R>(self) -> Result<R, LockError>
    where
        Self: Future<Output = R> + Sized;
}

fn main() {}
