use lock_runtime::LockKey;

#[derive(LockKey)]
struct Seat {
    train: String,
    number: u32,
}

fn main() {}
