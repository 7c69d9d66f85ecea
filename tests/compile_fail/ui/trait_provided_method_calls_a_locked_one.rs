use lock_runtime::{LockError, cache_lock};

#[cache_lock(proxy = LockedShop, prefix = "shop")]
trait Shop: Sized {
    #[cache_lock(key = id)]
    async fn buy(&self, id: u64) -> Result<u64, LockError>;

    #[cache_lock(key = id)]
    fn sell<T: Into<u64>>(&self, id: u64, pieces: T) -> Result<u64, LockError>;

    async fn price(&self, id: u64) -> u64;

    async fn buy_both(&self, one: u64, other: u64) -> Result<u64, LockError> {
        let price = self.price(one).await;
        Ok(price + self.buy(one).await? + Self::buy(self, other).await?)
    }

    #[cache_lock(key = one)]
    fn sell_both(&self, one: u64, other: u64) -> Result<(), LockError> {
        println!("{:?}", self.sell(one, 1_u64));
        Shop::sell::<u64>(self, other, 2)?;
        <Self as Shop>::sell(self, other, 3_u64).map(drop)
    }

    /// Another shop may be the proxy.
    async fn buy_there<S: Shop>(&self, other: &S) -> Result<u64, LockError> {
        S::buy(other, 7).await?;
        other.buy(7).await
    }
}

fn main() {}
