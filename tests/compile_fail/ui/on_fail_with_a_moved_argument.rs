use lock_runtime::cache_lock;

#[cache_lock(key = name, on_fail = name)]
async fn f(name: String) -> String {
    name + "!"
}

fn main() {}
