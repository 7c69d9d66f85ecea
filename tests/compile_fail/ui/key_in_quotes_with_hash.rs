use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order", key = "#order.id")]
async fn f(id: u64, order: Order) -> Result<u64, LockError> {
    Ok(id + order.id)
}

struct Order {
    id: u64,
}

fn main() {}
