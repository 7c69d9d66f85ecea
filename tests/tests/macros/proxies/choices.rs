//! Options, failures and managers.

use std::sync::LazyLock;

use lock_runtime::{LockError, LockManager, cache_lock};

use super::ShopError;

static OTHER: LazyLock<LockManager> = LazyLock::new(LockManager::in_memory);

const PREFIX: &str = "choices";

#[cache_lock(proxy = LockedShop, prefix = PREFIX, timeout_ms = 0)]
trait Shop {
    const PREFIX: &'static str = "choices:own";

    #[cache_lock(key = id, on_fail = |err: LockError| format!("{id}: {}", err.is_timeout()))]
    async fn told(&self, id: u64) -> String;

    #[cache_lock(key = id, on_fail = Err(ShopError::SoldOut))]
    async fn value(&self, id: u64) -> Result<(), ShopError>;

    #[cache_lock(key = id, manager = *OTHER, prefix = Self::PREFIX)]
    async fn elsewhere(&self, id: u64) -> Result<(), ShopError>;

    #[cache_lock(key = id, manager = self.locks())]
    async fn of_a_method(&self, id: u64) -> Result<(), ShopError>;

    #[cache_lock(key = id, timeout_s = 1, permits = 2)]
    async fn twice(&self, id: u64) -> Result<(), ShopError>;

    fn locks(&self) -> &LockManager {
        &OTHER
    }
}

struct Empty;

impl Shop for Empty {
    async fn told(&self, id: u64) -> String {
        format!("{id}: told")
    }

    async fn value(&self, _: u64) -> Result<(), ShopError> {
        Ok(())
    }

    async fn elsewhere(&self, _: u64) -> Result<(), ShopError> {
        Ok(())
    }

    async fn of_a_method(&self, _: u64) -> Result<(), ShopError> {
        Ok(())
    }

    async fn twice(&self, _: u64) -> Result<(), ShopError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_failure_is_reported_as_the_trait_says() {
    let locks = LockManager::in_memory();
    let shop = LockedShop::with_manager(Empty, locks.clone());
    assert_eq!(shop.told(1).await, "1: told");
    let held = locks.lock("choices", &1).acquire().await.unwrap();
    assert_eq!(shop.told(1).await, "1: true");
    assert!(matches!(shop.value(1).await, Err(ShopError::SoldOut)));
    shop.elsewhere(1).await.unwrap();
    shop.of_a_method(1).await.unwrap();
    held.release().await.unwrap();
    let _held = OTHER.lock("choices:own", &1).acquire().await.unwrap();
    assert!(matches!(shop.elsewhere(1).await, Err(ShopError::Lock(error)) if error.is_timeout()));
    shop.value(1).await.unwrap();
    shop.twice(2).await.unwrap();
}

#[tokio::test]
async fn the_managers_own_way_goes_before_the_scope() {
    let (own, scoped) = (LockManager::in_memory(), LockManager::in_memory());
    let _busy = own.lock("choices", &1).acquire().await.unwrap();
    let with = LockedShop::with_manager(Empty, own.clone());
    let without = LockedShop::new(Empty);
    assert!(scoped.scope(with.value(1)).await.is_err());
    scoped.scope(without.value(1)).await.unwrap();
}

/// An implementation may acquire locks itself. It enters those that the proxy already holds.
#[tokio::test]
async fn an_implementation_that_locks_the_same_enters() {
    struct Careful(LockManager);

    #[cache_lock(proxy = LockedTwice)]
    trait Twice {
        #[cache_lock(prefix = "choices:twice", key = id, timeout_ms = 100)]
        async fn run(&self, id: u64) -> Result<u64, LockError>;
    }

    impl Twice for Careful {
        #[cache_lock(prefix = "choices:twice", key = id, manager = self.0, timeout_ms = 100)]
        async fn run(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }
    }

    let locks = LockManager::in_memory();
    assert_eq!(LockedTwice::with_manager(Careful(locks.clone()), locks).run(1).await.unwrap(), 1);
}

/// What a proxy adds to a call: the arguments move once more.
#[test]
#[expect(clippy::large_types_passed_by_value, reason = "so that a move of it shows")]
fn a_call_through_the_proxy_is_larger_by_its_arguments() {
    type Large = [u8; 1024];

    #[cache_lock(proxy = LockedSink)]
    trait Sink {
        #[cache_lock(prefix = "choices", key = "all")]
        async fn take(&self, large: Large) -> Result<u8, LockError>;
    }

    struct Plain;

    impl Sink for Plain {
        async fn take(&self, large: Large) -> Result<u8, LockError> {
            tokio::task::yield_now().await;
            Ok(large[0])
        }
    }

    struct Direct;

    impl Sink for Direct {
        #[cache_lock(prefix = "choices", key = "all")]
        async fn take(&self, large: Large) -> Result<u8, LockError> {
            tokio::task::yield_now().await;
            Ok(large[0])
        }
    }

    let by_proxy = LockedSink::new(Plain);
    let (with, without) = (size_of_val(&by_proxy.take([0; 1024])), size_of_val(&Direct.take([0; 1024])));
    let move_of_arguments = size_of::<Large>() + size_of::<&Plain>();
    // A future stores its arguments twice: as arguments, and as variables of the body.
    assert!(with <= without + 2 * move_of_arguments + 64, "{with} bytes with a proxy, {without} without");
}
