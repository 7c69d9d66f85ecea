use lock_runtime::cache_lock;

#[cache_lock(key = id)]
async fn f(id: u64) -> Result<u64, String> {
    Ok(id)
}

fn main() {}
