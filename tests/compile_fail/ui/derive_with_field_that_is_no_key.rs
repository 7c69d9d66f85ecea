use lock_runtime::LockKey;

#[derive(LockKey)]
struct Price {
    #[lock_key]
    amount: f64,
    currency: String,
}

fn main() {}
