use lock_runtime::LockKey;

#[derive(LockKey)]
enum Room {
    Lobby,
    Suite { floor: u8, wing: char },
}

fn main() {}
