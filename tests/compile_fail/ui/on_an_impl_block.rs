use lock_runtime::cache_lock;

struct Shop;

#[cache_lock(key = id)]
impl Shop {
    async fn buy(&self, id: u64) -> u64 {
        id
    }
}

fn main() {
    let _ = Shop.buy(1);
}
