//! The article's example: an annotated interface, and an implementation without locks.

use futures_util::future::join_all;
use lock_runtime::{LockError, LockManager, cache_lock};

use super::{ShopError, Stock, everywhere};

/// A flash sale.
#[cache_lock(proxy = LockedSeckill)]
trait Seckill {
    /// Sells one piece.
    #[cache_lock(prefix = "seckill", timeout_ms = 2000)]
    async fn sec_kill(&self, user: &str, #[locked_object] commodity_id: u64) -> Result<u64, ShopError>;

    #[cache_lock(prefix = "seckill", timeout_ms = 2000)]
    async fn fulfil(&self, #[locked_complex_object(field = commodity.id)] order: &Order) -> Result<u64, ShopError>;

    async fn stock(&self, commodity_id: u64) -> Result<u64, ShopError>;
}

struct Order {
    commodity: Commodity,
}

struct Commodity {
    id: u64,
}

struct Shop {
    stock: [Stock; 2],
}

impl Seckill for Shop {
    async fn sec_kill(&self, user: &str, commodity_id: u64) -> Result<u64, ShopError> {
        assert!(!user.is_empty());
        self.stock[usize::try_from(commodity_id).unwrap()].take_one().await
    }

    async fn fulfil(&self, order: &Order) -> Result<u64, ShopError> {
        self.sec_kill("by order", order.commodity.id).await
    }

    async fn stock(&self, commodity_id: u64) -> Result<u64, ShopError> {
        Ok(self.stock[usize::try_from(commodity_id).unwrap()].left())
    }
}

fn shop() -> Shop {
    Shop { stock: [Stock::of(100), Stock::of(100)] }
}

/// Fifty buyers of each item: half of them pass its id, the other half an order.
async fn sale(shop: &impl Seckill) -> [u64; 2] {
    let buyers = (0..100).map(async |buyer| {
        let id = buyer % 2;
        if buyer < 50 {
            shop.sec_kill("ada", id).await.unwrap();
        } else {
            shop.fulfil(&Order { commodity: Commodity { id } }).await.unwrap();
        }
    });
    join_all(buyers).await;
    [shop.stock(0).await.unwrap(), shop.stock(1).await.unwrap()]
}

#[tokio::test]
async fn the_implementation_sells_too_much_and_its_proxy_does_not() {
    assert_eq!(sale(&shop()).await, [99, 99]);
    everywhere(async |locks| {
        let locked = LockedSeckill::with_manager(shop(), locks.clone());
        assert_eq!(sale(&locked).await, [50, 50]);
        assert_eq!(locked.inner().stock[0].left(), 50);
        let shop: Shop = locked.into_inner();
        assert_eq!(shop.stock(1).await.unwrap(), 50);
        let locked = LockedSeckill::new(shop);
        assert_eq!(locks.scope(sale(&locked)).await, [0, 0]);
        assert!(matches!(locks.scope(locked.sec_kill("late", 0)).await, Err(ShopError::SoldOut)));
    })
    .await;
}

#[tokio::test]
async fn a_proxy_without_a_manager_says_so() {
    let locked = LockedSeckill::new(shop());
    assert!(matches!(locked.sec_kill("ada", 0).await, Err(ShopError::Lock(LockError::NotInstalled))));
    // This method has no lock.
    assert_eq!(locked.stock(0).await.unwrap(), 100);
}

#[tokio::test]
async fn a_busy_item_does_not_keep_others_from_another() {
    let locks = LockManager::in_memory();
    let locked = LockedSeckill::with_manager(shop(), locks.clone());
    let _held = locks.lock("seckill", &0).acquire().await.unwrap();
    locked.sec_kill("ada", 1).await.unwrap();
}
