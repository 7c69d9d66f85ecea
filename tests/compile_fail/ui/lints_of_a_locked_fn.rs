#![deny(dead_code, unreachable_pub)]

use lock_runtime::{LockError, cache_lock};

#[cache_lock(prefix = "order", key = id)]
async fn that_nobody_calls(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

mod private {
    #[super::cache_lock(prefix = "order", key = id, on_fail = ())]
    pub fn that_is_not_public(id: u64) {}
}

fn main() {
    private::that_is_not_public(7);
}
