/// Sells.
impl<T: Send> Shop<T> {
    const ITEMS: u64 = 1;
    #[cache_lock(
        key = id,
        timeout = "2s",
        prefix = "shop",
        manager = &self.locks,
        mode = "read"
    )]
    async fn buy(&self, id: u64) -> Result<(), ShopError> {}
    #[lock_runtime::cache_lock(
        permits = 4,
        prefix = "shop",
        manager = &self.locks,
        timeout_ms = 500
    )]
    async fn render(&self, #[locked_object] id: u64) -> Result<(), ShopError> {}
    #[cache_lock(
        prefix = "shop",
        manager = &self.locks,
        timeout_ms = 500,
        mode = "read"
    )]
    async fn look(&self, #[locked_object] id: u64) -> Result<(), ShopError> {}
    async fn stock(&self) -> u64 {
        1
    }
}
