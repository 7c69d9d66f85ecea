//! Options on an `impl` block, for all its fns.

use std::sync::Arc;

use async_trait::async_trait;
use lock_runtime::{LockManager, cache_lock};

use crate::behaviour::{Result, ShopError};

struct Shop {
    locks: LockManager,
}

#[cache_lock(prefix = "shop", manager = &self.locks, timeout_ms = 0, on_fail = Err(ShopError::SoldOut))]
impl Shop {
    const ITEM: u64 = 1;

    #[cache_lock(key = id)]
    async fn buy(&self, id: u64) -> Result<u64, ShopError> {
        Ok(id)
    }

    #[cache_lock(key = id, guard = guard, timeout = "1s", on_fail = |err| Err(err.into()))]
    async fn patient(&self, id: u64) -> Result<String, ShopError> {
        Ok(guard.key().to_owned())
    }

    #[cache_lock(prefix = "shop:render", permits = 2)]
    async fn render(&self, #[locked_object] id: u64) -> Result<u64, ShopError> {
        Ok(id)
    }

    #[cache_lock(key = "all")]
    fn count(&self) -> Result<u64, ShopError> {
        Ok(Self::ITEM)
    }

    async fn stock(&self) -> u64 {
        tokio::task::yield_now().await;
        Self::ITEM
    }
}

#[tokio::test]
async fn a_blocks_options_count_where_a_fn_has_none_of_its_own() {
    let shop = Shop { locks: LockManager::in_memory() };
    assert_eq!(shop.buy(1).await.unwrap(), 1);
    assert_eq!(shop.patient(1).await.unwrap(), "shop:1");
    let held = shop.locks.lock("shop", &1).acquire().await.unwrap();
    assert!(matches!(shop.buy(1).await, Err(ShopError::SoldOut)));
    assert!(matches!(shop.patient(1).await, Err(ShopError::Lock(error)) if error.is_timeout()));
    assert_eq!(shop.render(1).await.unwrap(), 1);
    assert_eq!(shop.stock().await, 1);
    drop(held);
    let shop = Arc::new(shop);
    assert_eq!(tokio::task::spawn_blocking(move || shop.count()).await.unwrap().unwrap(), 1);
}

#[async_trait]
trait Sells {
    async fn sell(&self, id: u64) -> Result<String, ShopError>;
    async fn stock(&self) -> u64;
}

struct Below(LockManager);

#[async_trait]
#[lock_runtime::cache_lock(prefix = "block", manager = self.0)]
impl Sells for Below {
    #[lock_runtime::cache_lock(key = id, guard = guard)]
    async fn sell(&self, id: u64) -> Result<String, ShopError> {
        Ok(guard.key().to_owned())
    }

    async fn stock(&self) -> u64 {
        1
    }
}

struct Above<T>(LockManager, T);

#[cache_lock(prefix = "block", manager = self.0)]
#[async_trait]
impl<T: Send + Sync> Sells for Above<T> {
    #[cache_lock(guard = guard)]
    async fn sell(&self, #[locked_object] id: u64) -> Result<String, ShopError> {
        Ok(guard.key().to_owned())
    }

    async fn stock(&self) -> u64 {
        2
    }
}

#[tokio::test]
async fn a_block_of_async_trait_is_like_any_other() {
    let locks = LockManager::in_memory();
    let all: [Arc<dyn Sells>; 2] = [Arc::new(Below(locks.clone())), Arc::new(Above(locks, 1))];
    for (shop, stock) in all.iter().zip([1, 2]) {
        assert_eq!(shop.sell(7).await.unwrap(), "block:7");
        assert_eq!(shop.stock().await, stock);
    }
}

macro_rules! block_of {
    ($name:ident, $fn:item) => {
        struct $name;

        #[cache_lock(prefix = "block", timeout_ms = 0)]
        impl $name {
            $fn
        }
    };
}

block_of! {
    Made,
    #[cache_lock(key = id, guard = guard)]
    async fn buy(&self, id: u64) -> Result<String, ShopError> {
        Ok(guard.key().to_owned())
    }
}

#[tokio::test]
async fn a_fn_that_a_macro_put_into_its_block_has_the_blocks_options() {
    assert_eq!(LockManager::in_memory().scope(Made.buy(7)).await.unwrap(), "block:7");
}
