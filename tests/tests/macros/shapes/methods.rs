//! Methods of types and of traits.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockKey, LockManager, cache_lock};

use crate::shapes::{Result, assert_send};

mod nested {
    pub(crate) const PREFIX: &str = "shapes:nested";
}

#[derive(Debug)]
struct Shop {
    locks: LockManager,
    shared: Arc<LockManager>,
    id: u64,
    stock: u64,
    timeout: Duration,
}

impl Shop {
    const PREFIX: &'static str = "shapes:shop";

    const fn id(&self) -> u64 {
        self.id
    }

    #[cache_lock(prefix = Self::PREFIX, key = self.id(), manager = self.locks, timeout = self.timeout)]
    async fn by_ref(&self) -> Result<u64> {
        tokio::task::yield_now().await;
        Ok(self.stock)
    }

    #[cache_lock(prefix = "shapes", key = (self.id, self.id()), manager = self.shared)]
    async fn by_mut(&mut self, id: u64) -> Result<&mut u64> {
        self.stock += id;
        Ok(&mut self.stock)
    }

    #[cache_lock(prefix = "shapes", key = self.id, manager = &self.shared)]
    async fn by_value(mut self) -> Result<Self> {
        self.stock += 1;
        Ok(self)
    }

    #[cache_lock(prefix = "shapes", key = self.id)]
    async fn by_arc(self: Arc<Self>) -> Result<Arc<Self>> {
        Ok(self)
    }

    #[cache_lock(prefix = "shapes", key = self.id)]
    async fn by_pin(self: Pin<&mut Self>) -> Result<u64> {
        Ok(self.stock)
    }

    #[cache_lock(prefix = "shapes", key = self.id)]
    fn boxed<'a>(&'a self, extra: &'a u64) -> Pin<Box<dyn Future<Output = Result<u64>> + Send + 'a>> {
        let sum = self.stock + extra;
        Box::pin(async move { Ok(sum + self.id) })
    }
}

trait Buys {
    async fn buy(&mut self, id: u64) -> Result<u64>;

    #[cache_lock(prefix = "shapes", key = id)]
    async fn default_body(&self, id: u64) -> Result<u64>
    where
        Self: Sized,
    {
        Ok(id)
    }

    fn boxed_in_trait(&self, id: u64) -> impl Future<Output = Result<u64>> + Send;
}

impl Buys for Shop {
    #[cache_lock(prefix = "shapes", key = id)]
    async fn buy(&mut self, id: u64) -> Result<u64> {
        self.stock -= id;
        Ok(self.stock)
    }

    #[cache_lock(prefix = "shapes", key = id)]
    fn boxed_in_trait(&self, id: u64) -> impl Future<Output = Result<u64>> + Send {
        async move { Ok(id + self.stock) }
    }
}

#[async_trait::async_trait]
trait Sells<T: LockKey + Send + Sync> {
    async fn sell(&self, id: T) -> Result<u64>;
    async fn sell_all(&mut self, ids: &[u64]) -> Result<&u64>;
    async fn extract(&self, path: axum::extract::Path<u64>, pair: (u64, u64)) -> Result<u64>;
    async fn generic<'a, U: LockKey + Sync>(&self, text: &'a str, key: &U) -> Result<&'a str>;
    async fn silent(&self, id: u64);

    #[cache_lock(prefix = "shapes", key = id)]
    async fn with_default(&self, mut id: u64) -> Result<u64> {
        id += 1;
        Ok(id)
    }
}

#[async_trait::async_trait]
impl<T: LockKey + Send + Sync + 'static> Sells<T> for Shop {
    #[cache_lock(prefix = "shapes", manager = self.locks, guard = guard)]
    async fn sell(&self, #[locked_object] id: T) -> Result<u64> {
        tokio::task::yield_now().await;
        drop(id);
        Ok(guard.key().len() as u64 + self.stock)
    }

    #[cache_lock(prefix = "shapes", key = (self.id, ids.first()))]
    async fn sell_all(&mut self, ids: &[u64]) -> Result<&u64> {
        for id in ids {
            self.stock -= id;
        }
        Ok(&self.stock)
    }

    #[cache_lock(prefix = "shapes", key = (id, a))]
    #[tracing::instrument(skip_all)]
    async fn extract(&self, axum::extract::Path(id): axum::extract::Path<u64>, (a, b): (u64, u64)) -> Result<u64> {
        Ok(id + a + b)
    }

    #[tracing::instrument(skip_all)]
    #[cache_lock(prefix = "shapes", key = (self.id, key, text))]
    async fn generic<'a, U: LockKey + Sync>(&self, text: &'a str, key: &U) -> Result<&'a str> {
        let _: &U = key;
        Ok(text)
    }

    #[cache_lock(prefix = nested::PREFIX, key = (id, self.id), on_fail = ())]
    async fn silent(&self, id: u64) {
        let _: u64 = id;
    }
}

#[async_trait::async_trait(?Send)]
trait Local {
    async fn local(&self, id: Rc<u64>) -> Result<Rc<u64>>;
}

#[async_trait::async_trait(?Send)]
impl Local for Shop {
    #[cache_lock(prefix = "shapes", key = format!("{}-{id}", self.id))]
    async fn local(&self, id: Rc<u64>) -> Result<Rc<u64>> {
        tokio::task::yield_now().await;
        Ok(id)
    }
}

fn shop() -> Shop {
    let locks = LockManager::in_memory();
    Shop { shared: Arc::new(locks.clone()), locks, id: 1, stock: 50, timeout: Duration::from_millis(100) }
}

#[tokio::test]
async fn methods_return_what_their_bodies_compute() -> Result<()> {
    let mut shop = shop();
    let locks = shop.locks.clone();
    locks
        .scope(async {
            assert_eq!(assert_send(shop.by_ref()).await?, 50);
            *assert_send(shop.by_mut(1)).await? += 1;
            shop = assert_send(shop.by_value()).await?;
            assert_eq!(assert_send(Pin::new(&mut shop).by_pin()).await?, 53);
            assert_eq!(assert_send(shop.boxed(&2)).await?, 56);
            assert_eq!(assert_send(shop.buy(3)).await?, 50);
            assert_eq!(assert_send(shop.default_body(3)).await?, 3);
            assert_eq!(assert_send(shop.boxed_in_trait(3)).await?, 53);
            assert_eq!(Sells::<u64>::sell(&shop, 7).await?, 58);
            assert_eq!(*Sells::<u64>::sell_all(&mut shop, &[1, 2]).await?, 47);
            assert_eq!(Sells::<u64>::extract(&shop, axum::extract::Path(1), (2, 3)).await?, 6);
            assert_eq!(Sells::<u64>::generic(&shop, "t", &1).await?, "t");
            assert_eq!(Sells::<u64>::with_default(&shop, 1).await?, 2);
            Sells::<u64>::silent(&shop, 1).await;
            assert_eq!(*shop.local(Rc::new(5)).await?, 5);
            Arc::new(shop).by_arc().await?;
            Ok(())
        })
        .await
}
