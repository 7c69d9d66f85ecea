use lock_runtime::{LockError, cache_lock};

struct Request {
    id: u64,
    order: Order,
}

struct Order {
    id: u64,
}

#[cache_lock(prefix = "order")]
async fn f(#[locked_complex_object(field = "order.idd")] request: &Request) -> Result<u64, LockError> {
    Ok(request.id + request.order.id)
}

#[cache_lock(prefix = "order")]
async fn without_quotes(#[locked_complex_object(field = order.idd)] request: &Request) -> Result<u64, LockError> {
    Ok(request.id + request.order.id)
}

fn main() {}
