//! Methods that are not async.

use std::sync::Arc;

use lock_runtime::cache_lock;

use super::{ShopError, Stock, everywhere};

#[cache_lock(proxy = LockedCatalog)]
trait Catalog: Send + Sync {
    #[cache_lock(prefix = "blocking", key = id, timeout_s = 10)]
    fn rebuild(&self, id: u64) -> Result<u64, ShopError>;

    #[cache_lock(prefix = "blocking", key = id, timeout_s = 10, mode = "read", on_fail = 0)]
    fn look(&self, id: u64) -> u64;
}

struct Shelf(Stock);

impl Catalog for Shelf {
    fn rebuild(&self, _: u64) -> Result<u64, ShopError> {
        Ok(self.0.take_one_slowly())
    }

    fn look(&self, _: u64) -> u64 {
        self.0.left()
    }
}

#[tokio::test]
async fn a_method_on_a_thread_is_locked() {
    everywhere(async |locks| {
        let catalog = Arc::new(LockedCatalog::with_manager(Shelf(Stock::of(100)), locks));
        let mut threads = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let catalog = catalog.clone();
            threads.spawn_blocking(move || catalog.rebuild(1).unwrap());
        }
        threads.join_all().await;
        assert_eq!(catalog.inner().0.left(), 80);
        let reader = catalog.clone();
        assert_eq!(tokio::task::spawn_blocking(move || reader.look(1)).await.unwrap(), 80);
        assert!(matches!(catalog.rebuild(1), Err(ShopError::Lock(_))), "it must fail on the thread of an async task");
    })
    .await;
}
