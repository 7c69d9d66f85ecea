use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "render", key = tenant, permits = 4, linger_ms = 500)]
async fn permit(tenant: u64) -> Result<u64, LockError> {
    Ok(tenant)
}

#[cache_lock(prefix = "catalog", key = id, mode = "read", linger = "500ms", max_hold = "5m")]
async fn read(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[cache_lock(prefix = "catalog", key = id, mode = "read", linger_s = 1, renew = false)]
async fn read_briefly(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

// These have a meaning.
#[cache_lock(prefix = "catalog", key = id, mode = "read", linger_s = 1, renew)]
async fn hot(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[cache_lock(prefix = "catalog", key = id, mode = "write", linger_s = 1, max_hold = "5m", at_least = "1s")]
async fn write(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
