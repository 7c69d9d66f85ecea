use lock_runtime::cache_lock;

#[cache_lock(key = id)]
struct Order {
    id: u64,
}

fn main() {
    let _ = Order { id: 1 }.id;
}
