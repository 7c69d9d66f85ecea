use lock_runtime::LockKey;

#[derive(LockKey)]
union Bits {
    whole: u64,
    half: u32,
}

fn main() {}
