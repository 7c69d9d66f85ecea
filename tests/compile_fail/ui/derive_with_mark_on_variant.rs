use lock_runtime::LockKey;

#[derive(LockKey)]
enum Room {
    #[lock_key]
    Lobby,
    Numbered(u32),
}

fn main() {}
