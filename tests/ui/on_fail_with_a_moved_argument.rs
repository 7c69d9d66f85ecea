use lock_runtime::{LockError, cache_lock};

#[cache_lock(key = name, on_fail = name)]
async fn f(name: String) -> String {
    name + "!"
}

fn main() {}
