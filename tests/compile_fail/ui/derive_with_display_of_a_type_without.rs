use lock_runtime::LockKey;

struct Train;

#[derive(LockKey)]
struct Seat {
    #[lock_key(display)]
    train: Train,
    #[lock_key]
    number: u32,
}

fn main() {}
