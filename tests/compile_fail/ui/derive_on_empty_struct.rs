use lock_runtime::LockKey;

#[derive(LockKey)]
struct Everything;

fn main() {}
