use lock_runtime::cache_lock;

#[cache_lock(key = id)]
async fn f(id: u64) -> u64 {
    id
}

fn main() {}
