//! Methods that return futures, and futures that are spawned.

use std::pin::Pin;
use std::sync::Arc;

use lock_runtime::{LockManager, cache_lock};

use super::{ShopError, Stock, everywhere};

#[cache_lock(proxy = LockedShop)]
trait Shop {
    #[cache_lock(prefix = "futures", key = item, timeout_s = 5)]
    fn buy(&self, item: u64) -> impl Future<Output = Result<u64, ShopError>> + Send;

    #[cache_lock(prefix = "futures", key = item, timeout_s = 5)]
    fn boxed<'a>(&'a self, item: &'a u64) -> Pin<Box<dyn Future<Output = Result<u64, ShopError>> + Send + 'a>>;

    #[cache_lock(prefix = "futures", key = item, timeout_s = 5)]
    fn captured(&self, item: u64) -> impl Future<Output = Result<u64, ShopError>> + Send + use<'_, Self>;

    #[cache_lock(prefix = "futures", key = item, timeout_s = 5)]
    async fn native(&self, item: u64) -> Result<u64, ShopError>;

    fn unlocked(&self) -> impl Future<Output = u64> + Send;
}

struct Counted {
    stock: Stock,
}

impl Shop for Counted {
    fn buy(&self, _: u64) -> impl Future<Output = Result<u64, ShopError>> + Send {
        // Runs before the future is made, and also under the lock.
        let left = self.stock.left();
        async move {
            tokio::task::yield_now().await;
            self.stock.0.store(left - 1, std::sync::atomic::Ordering::Relaxed);
            Ok(left - 1)
        }
    }

    fn boxed<'a>(&'a self, _: &'a u64) -> Pin<Box<dyn Future<Output = Result<u64, ShopError>> + Send + 'a>> {
        Box::pin(self.stock.take_one())
    }

    fn captured(&self, _: u64) -> impl Future<Output = Result<u64, ShopError>> + Send + use<'_> {
        self.stock.take_one()
    }

    async fn native(&self, _: u64) -> Result<u64, ShopError> {
        self.stock.take_one().await
    }

    async fn unlocked(&self) -> u64 {
        self.stock.left()
    }
}

#[tokio::test]
async fn what_could_be_spawned_still_can() {
    everywhere(async |locks| {
        let shop = Arc::new(LockedShop::with_manager(Counted { stock: Stock::of(100) }, locks));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let (one, two, three, four) = (shop.clone(), shop.clone(), shop.clone(), shop.clone());
            tasks.spawn(async move { one.buy(1).await.unwrap() });
            tasks.spawn(async move { two.boxed(&1).await.unwrap() });
            tasks.spawn(async move { three.native(1).await.unwrap() });
            tasks.spawn(async move { four.captured(1).await.unwrap() });
        }
        tasks.join_all().await;
        assert_eq!(shop.unlocked().await, 60);
    })
    .await;
}

#[tokio::test]
async fn a_future_that_is_not_send_is_locked_like_any_other() {
    #[cache_lock(proxy = LockedLocal)]
    trait Local {
        #[cache_lock(prefix = "futures", key = item.get())]
        async fn buy(&self, item: std::rc::Rc<std::cell::Cell<u64>>) -> Result<u64, ShopError>;
    }

    struct Here(std::rc::Rc<u64>);

    impl Local for Here {
        async fn buy(&self, item: std::rc::Rc<std::cell::Cell<u64>>) -> Result<u64, ShopError> {
            tokio::task::yield_now().await;
            Ok(*self.0 + item.get())
        }
    }

    let shop = LockedLocal::with_manager(Here(std::rc::Rc::new(1)), LockManager::in_memory());
    assert_eq!(shop.buy(std::rc::Rc::new(std::cell::Cell::new(2))).await.unwrap(), 3);
}
