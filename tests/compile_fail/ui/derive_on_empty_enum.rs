use lock_runtime::LockKey;

#[derive(LockKey)]
enum Never {}

fn main() {}
