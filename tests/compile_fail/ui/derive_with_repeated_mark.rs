use lock_runtime::LockKey;

#[derive(LockKey)]
struct Seat {
    #[lock_key]
    #[lock_key]
    number: u32,
}

fn main() {}
