use lock_runtime::LockKey;

#[derive(LockKey)]
#[lock_key(rename = "s")]
struct Seat {
    number: u32,
}

fn main() {}
