use lock_runtime::cache_lock;

#[cache_lock(key = id)]
async fn f(id: u64) {
    let _ = id;
}

fn main() {}
