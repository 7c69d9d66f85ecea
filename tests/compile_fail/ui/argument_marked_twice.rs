use lock_runtime::{LockError, cache_lock};

#[cache_lock]
async fn f(
    #[locked_object]
    #[locked_object]
    id: u64,
) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
