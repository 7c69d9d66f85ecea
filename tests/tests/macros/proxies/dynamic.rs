//! Traits of `async-trait`: behind `Arc<dyn …>`.

use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use lock_runtime::testing::is_locked_here;
use lock_runtime::{LockManager, cache_lock};

use super::{ShopError, Stock, everywhere};

#[async_trait]
#[cache_lock(proxy = LockedBelow)]
trait Below: Send + Sync {
    #[cache_lock(prefix = "dynamic", timeout_s = 5)]
    async fn buy(&self, user: &str, #[locked_object] item: u64) -> Result<u64, ShopError>;

    #[cache_lock(prefix = "dynamic:default", key = "all")]
    async fn by_default(&self, user: String) -> Result<u64, ShopError> {
        self.take(&user).await
    }

    async fn take(&self, user: &str) -> Result<u64, ShopError>;

    async fn stock(&self) -> u64;
}

#[cache_lock(proxy = LockedAbove)]
#[async_trait]
trait Above {
    #[cache_lock(prefix = "dynamic", key = item, timeout_s = 5)]
    async fn buy(&self, user: &str, item: u64) -> Result<u64, ShopError>;

    #[cache_lock(prefix = "dynamic", key = *item, timeout_s = 5)]
    async fn by_default(&mut self, item: &u64) -> Result<u64, ShopError>
    where
        Self: Sync,
    {
        Ok(self.stock().await + item)
    }

    async fn stock(&self) -> u64;
}

#[cache_lock(proxy = LockedLocal)]
#[async_trait(?Send)]
trait Local {
    #[cache_lock(prefix = "dynamic", key = item)]
    async fn buy(&self, item: Rc<u64>) -> Result<u64, ShopError>;
}

/// The author wrote `async fn`, so the key may await and fail.
#[async_trait]
#[cache_lock(proxy = LockedKeyed)]
trait Keyed: Sync {
    #[cache_lock(prefix = "dynamic", key = self.account().await)]
    async fn waits(&self) -> Result<u64, ShopError>;

    #[cache_lock(prefix = "dynamic", key = self.checked(item)?)]
    async fn fails(&self, item: u64) -> Result<u64, ShopError>;

    async fn account(&self) -> u64;

    fn checked(&self, _item: u64) -> Result<u64, ShopError> {
        Err(ShopError::SoldOut)
    }
}

struct Account;

#[async_trait]
impl Keyed for Account {
    async fn waits(&self) -> Result<u64, ShopError> {
        Ok(u64::from(is_locked_here("dynamic", &7)))
    }

    async fn fails(&self, _item: u64) -> Result<u64, ShopError> {
        Ok(0)
    }

    async fn account(&self) -> u64 {
        tokio::task::yield_now().await;
        7
    }
}

#[tokio::test]
async fn a_key_waits_and_fails_at_the_first_poll() {
    let locked: Arc<dyn Keyed + Send + Sync> = Arc::new(LockedKeyed::with_manager(Account, LockManager::in_memory()));
    assert_eq!(locked.waits().await.unwrap(), 1);
    let failing = locked.fails(1);
    assert!(matches!(failing.await, Err(ShopError::SoldOut)));
}

struct Shop(Stock);

#[async_trait]
impl Below for Shop {
    async fn buy(&self, user: &str, _: u64) -> Result<u64, ShopError> {
        self.take(user).await
    }

    async fn take(&self, user: &str) -> Result<u64, ShopError> {
        assert_eq!(user, "ada");
        self.0.take_one().await
    }

    async fn stock(&self) -> u64 {
        self.0.left()
    }
}

#[async_trait]
impl Above for Shop {
    async fn buy(&self, user: &str, _: u64) -> Result<u64, ShopError> {
        Below::buy(self, user, 1).await
    }

    async fn stock(&self) -> u64 {
        self.0.left()
    }
}

#[async_trait(?Send)]
impl Local for Shop {
    async fn buy(&self, _: Rc<u64>) -> Result<u64, ShopError> {
        self.0.take_one().await
    }
}

#[tokio::test]
async fn a_proxy_is_an_object_and_moves_between_threads() {
    everywhere(async |locks| {
        let shop: Arc<dyn Below> = Arc::new(LockedBelow::with_manager(Shop(Stock::of(100)), locks.clone()));
        let buyers: Vec<_> = (0..20)
            .map(|_| {
                let shop = shop.clone();
                tokio::spawn(async move { shop.buy("ada", 1).await.unwrap() })
            })
            .collect();
        for buyer in buyers {
            buyer.await.unwrap();
        }
        shop.by_default("ada".to_owned()).await.unwrap();
        assert_eq!(shop.stock().await, 79);
        let shop: Box<dyn Above> = Box::new(LockedAbove::with_manager(Shop(Stock::of(9)), locks));
        assert_eq!(shop.buy("ada", 1).await.unwrap(), 8);
        assert_eq!(shop.stock().await, 8);
    })
    .await;
}

#[tokio::test]
async fn a_method_may_demand_more_of_the_implementation() {
    let locks = LockManager::in_memory();
    let mut shop = LockedAbove::with_manager(Shop(Stock::of(9)), locks.clone());
    assert_eq!(shop.by_default(&1).await.unwrap(), 10);
    let shop: Rc<dyn Local> = Rc::new(LockedLocal::with_manager(Shop(Stock::of(9)), locks));
    assert_eq!(shop.buy(Rc::new(1)).await.unwrap(), 8);
}
