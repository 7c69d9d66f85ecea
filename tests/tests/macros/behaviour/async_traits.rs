//! Fns in traits of `async-trait`.

use std::sync::Arc;

use axum::extract::Path;
use lock_runtime::{LockManager, cache_lock};

use crate::behaviour::{Result, ShopError, alone};

const PREFIX: &str = "trait";

#[async_trait::async_trait]
trait Buys: Send + Sync {
    async fn buy(&self, id: Path<u64>, amount: u64) -> Result<String, ShopError>;

    #[cache_lock(prefix = self::PREFIX, key = self.id(), guard = guard)]
    async fn by_default(&self) -> Result<String, ShopError> {
        Ok(guard.key().to_owned())
    }

    fn id(&self) -> u64;
}

struct Shop {
    locks: LockManager,
    id: u64,
}

#[async_trait::async_trait]
impl Buys for Shop {
    #[cache_lock(prefix = "trait", manager = self.locks, guard = guard, timeout_ms = 0, on_fail = Ok(format!("{} is busy", self.id)))]
    async fn buy(&self, #[locked_object] Path(id): Path<u64>, mut amount: u64) -> Result<String, ShopError> {
        amount += id;
        tokio::task::yield_now().await;
        if amount == 0 {
            return Err(ShopError::SoldOut);
        }
        Ok(format!("{} {amount}", guard.key()))
    }

    fn id(&self) -> u64 {
        self.id
    }
}

#[tokio::test]
async fn a_fn_that_async_trait_has_rewritten_is_locked_like_any_other() {
    let locks = LockManager::in_memory();
    let shop = Shop { locks: locks.clone(), id: 3 };
    let shop: Arc<dyn Buys> = Arc::new(shop);
    assert_eq!(shop.buy(Path(1), 2).await.unwrap(), "trait:1 3");
    assert!(matches!(shop.buy(Path(0), 0).await, Err(ShopError::SoldOut)));
    let held = locks.lock("trait", &1).acquire().await.unwrap();
    assert_eq!(shop.buy(Path(1), 2).await.unwrap(), "3 is busy");
    drop(held);
    assert_eq!(alone(shop.by_default()).await.unwrap(), "trait:3");
    let task = tokio::spawn(async move { shop.buy(Path(1), 2).await.unwrap() });
    assert_eq!(task.await.unwrap(), "trait:1 3");
}
