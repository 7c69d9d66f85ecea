#[doc(hidden)]
#[async_trait::async_trait(?Send)]
#[shop::locks::cache_lock(proxy = LockedSeckill, crate = shop::locks)]
#[automock]
pub(crate) trait Seckill {
    #[cache_lock(key = id)]
    async fn sec_kill(&self, id: u64) -> Result<u64, ShopError>;
}
