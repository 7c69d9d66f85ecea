use lock_runtime::{LockError, cache_lock};

struct Order {
    id: u64,
}

#[cache_lock(prefix = "order")]
async fn f(#[locked_complex_object(field = "number")] order: &Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
