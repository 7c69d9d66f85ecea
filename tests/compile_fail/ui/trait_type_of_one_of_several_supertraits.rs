use lock_runtime::{LockError, cache_lock};

trait Stored {
    type Row;
}

trait Sold {
    type Price;
}

#[cache_lock(proxy = LockedShop)]
trait Shop: Stored + Sold + Send {
    #[cache_lock(key = id)]
    fn put(&self, id: u64, row: Self::Row) -> Result<(), LockError>;

    #[cache_lock(key = id)]
    fn price(&self, id: u64) -> Result<<Self as Sold>::Price, LockError>;
}

fn main() {}
