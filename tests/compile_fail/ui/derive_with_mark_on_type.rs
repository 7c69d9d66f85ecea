use lock_runtime::LockKey;

#[derive(LockKey)]
#[lock_key]
struct Seat {
    number: u32,
}

fn main() {}
