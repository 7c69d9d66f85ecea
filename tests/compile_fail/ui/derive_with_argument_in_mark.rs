use lock_runtime::LockKey;

#[derive(LockKey)]
struct Seat {
    #[lock_key(order = 1)]
    number: u32,
}

fn main() {}
