#[trait_variant::make(Send)]
#[::lock_runtime::cache_lock(proxy = Locked)]
trait Seckill {
    #[cache_lock(key = id)]
    async fn sec_kill(&self, id: u64) -> Result<u64, ShopError>;
}
