//! The `manager` option.

use std::sync::Arc;

use lock_runtime::{LockManager, cache_lock};

use crate::behaviour::{Result, alone};

struct Shop {
    owned: LockManager,
    shared: Arc<LockManager>,
    id: u64,
}

impl Shop {
    #[cache_lock(prefix = "m", key = self.id, manager = self.owned, timeout_ms = 0)]
    async fn owned(&self) -> Result<u64> {
        Ok(self.id)
    }

    #[cache_lock(prefix = "m", key = self.id, manager = self.shared, timeout_ms = 0)]
    async fn shared(&mut self) -> Result<u64> {
        self.id += 1;
        Ok(self.id)
    }

    #[cache_lock(prefix = "m", key = self.id, manager = &&self.owned, timeout_ms = 0)]
    async fn borrowed(self) -> Result<Self> {
        Ok(self)
    }
}

#[tokio::test]
async fn the_named_manager_goes_before_the_scope() {
    let owned = LockManager::in_memory();
    let mut shop = Shop { shared: Arc::new(owned.clone()), owned: owned.clone(), id: 1 };
    alone(async move {
        assert_eq!(shop.owned().await.unwrap(), 1);
        assert_eq!(shop.shared().await.unwrap(), 2);
        shop = shop.borrowed().await.unwrap();
        let held = owned.lock("m", &2).acquire().await.unwrap();
        assert!(shop.owned().await.unwrap_err().is_timeout());
        assert!(shop.shared().await.unwrap_err().is_timeout());
        drop(held);
        assert_eq!(shop.borrowed().await.unwrap().id, 2);
    })
    .await;
}
