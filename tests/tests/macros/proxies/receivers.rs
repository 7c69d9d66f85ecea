//! Methods with every kind of receiver, and methods that return `Self`.

use std::pin::Pin;
use std::sync::Arc;

use lock_runtime::{LockError, LockManager, cache_lock};

#[cache_lock(proxy = LockedCounter, prefix = "receivers")]
trait Counter: Sized {
    fn new(start: u64) -> Self;

    #[cache_lock(key = "all")]
    async fn describe(
        #[allow(unused_variables, reason = "an attribute on an argument stays where it is")] of: &str,
    ) -> Result<String, LockError>;

    #[cache_lock(key = by)]
    async fn add(&mut self, by: u64) -> Result<&mut u64, LockError>;

    #[cache_lock(key = "all")]
    async fn join(self, mut other: Self) -> Result<Self, LockError> {
        other.add(0).await?;
        Ok(self)
    }

    #[cache_lock(key = self.value())]
    async fn boxed(self: Box<Self>) -> Result<u64, LockError>;

    #[cache_lock(key = "all")]
    async fn copied(&self) -> Result<Option<u64>, LockError>;

    async fn open(start: u64) -> Option<Self>;

    fn opened(start: u64) -> impl Future<Output = Result<Self, LockError>> + Send;

    fn value(&self) -> u64;

    fn is_more(&self, other: &Self) -> bool;
}

#[derive(Clone, Debug, PartialEq)]
struct Plain(u64);

impl Counter for Plain {
    fn new(start: u64) -> Self {
        Self(start)
    }

    async fn describe(of: &str) -> Result<String, LockError> {
        Ok(format!("the counter of {of}"))
    }

    async fn add(&mut self, by: u64) -> Result<&mut u64, LockError> {
        self.0 += by;
        Ok(&mut self.0)
    }

    async fn join(self, other: Self) -> Result<Self, LockError> {
        Ok(Self(self.0 + other.0))
    }

    async fn boxed(self: Box<Self>) -> Result<u64, LockError> {
        Ok(self.0)
    }

    async fn copied(&self) -> Result<Option<u64>, LockError> {
        Ok(Some(self.0))
    }

    async fn open(start: u64) -> Option<Self> {
        (start > 0).then_some(Self(start))
    }

    async fn opened(start: u64) -> Result<Self, LockError> {
        Ok(Self(start))
    }

    fn value(&self) -> u64 {
        self.0
    }

    fn is_more(&self, other: &Self) -> bool {
        self.0 > other.0
    }
}

#[tokio::test]
async fn every_self_is_passed_on() {
    let locks = LockManager::in_memory();
    let mut counter = LockedCounter::with_manager(Plain(1), locks.clone());
    *counter.add(1).await.unwrap() += 1;
    assert_eq!(counter.value(), 3);
    let other = <LockedCounter<Plain> as Counter>::new(4);
    assert!(other.is_more(&counter));
    let text = locks.scope(LockedCounter::<Plain>::describe("ada")).await.unwrap();
    assert_eq!(text, "the counter of ada");
    // It keeps the manager of the first one.
    let both = counter.join(other).await.unwrap();
    assert_eq!(both.copied().await.unwrap(), Some(7));
    assert_eq!(Box::new(both).boxed().await.unwrap(), 7);
    assert_eq!(LockedCounter::<Plain>::open(2).await.unwrap().into_inner(), Plain(2));
    assert!(LockedCounter::<Plain>::open(0).await.is_none());
    assert_eq!(LockedCounter::<Plain>::opened(2).await.unwrap().into_inner(), Plain(2));
}

#[cache_lock(proxy = LockedJob)]
trait Job: Send + Sync + 'static {
    #[cache_lock(prefix = "receivers:job")]
    async fn run(self: Arc<Self>, #[locked_object] id: u64) -> Result<u64, LockError>;

    fn start(self: Arc<Self>, id: u64) -> tokio::task::JoinHandle<u64>;

    #[cache_lock(prefix = "receivers:job", key = id)]
    fn boxed(self: Arc<Self>, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>;

    fn factor(&self) -> u64;
}

struct Times(u64);

impl Job for Times {
    async fn run(self: Arc<Self>, id: u64) -> Result<u64, LockError> {
        Ok(self.0 * id)
    }

    fn start(self: Arc<Self>, id: u64) -> tokio::task::JoinHandle<u64> {
        tokio::spawn(async move { self.0 * id })
    }

    fn boxed(self: Arc<Self>, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>> {
        Box::pin(async move { Ok(self.0 * id) })
    }

    fn factor(&self) -> u64 {
        self.0
    }
}

#[tokio::test]
async fn an_implementation_in_an_arc_is_passed_on() {
    let job = Arc::new(LockedJob::with_manager(Times(3), LockManager::in_memory()));
    assert_eq!(job.clone().run(2).await.unwrap(), 6);
    assert_eq!(job.clone().boxed(4).await.unwrap(), 12);
    assert_eq!(job.clone().start(5).await.unwrap(), 15);
    assert_eq!(tokio::spawn(job.clone().run(1)).await.unwrap().unwrap(), 3);
    assert_eq!((job.factor(), job.inner().0), (3, 3));
    let Ok(job) = Arc::try_unwrap(job) else { panic!("there is another handle of the proxy") };
    assert_eq!(job.into_inner().0, 3);
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send + 'a>>;

#[cache_lock(proxy = LockedGift, prefix = "receivers:gift")]
trait Gift: Sized {
    #[cache_lock(key = id)]
    fn give(self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>;

    #[cache_lock(key = id)]
    fn unpack(self: Box<Self>, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send + 'static;

    #[cache_lock(key = id)]
    fn give_to<'a>(self, id: &'a u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send + 'a>>;

    #[cache_lock(key = id)]
    fn none(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>;

    fn wrapped(&self) -> Pin<Box<dyn Future<Output = Result<Self, LockError>> + Send>>;
}

impl Gift for Plain {
    fn give(self, id: u64) -> Boxed<'static, u64> {
        Box::pin(async move { Ok(self.0 + id) })
    }

    async fn unpack(self: Box<Self>, id: u64) -> Result<u64, LockError> {
        Ok(self.0 + id)
    }

    fn give_to(self, id: &u64) -> Boxed<'_, u64> {
        Box::pin(async move { Ok(self.0 + id) })
    }

    fn none(id: u64) -> Boxed<'static, u64> {
        Box::pin(async move { Ok(id) })
    }

    fn wrapped(&self) -> Boxed<'static, Self> {
        let gift = self.clone();
        Box::pin(async move { Ok(gift) })
    }
}

#[tokio::test]
async fn a_future_may_have_its_self() {
    let gift = LockedGift::with_manager(Plain(1), LockManager::in_memory());
    assert_eq!(gift.clone().give(1).await.unwrap(), 2);
    assert_eq!(Box::new(gift.clone()).unpack(2).await.unwrap(), 3);
    assert_eq!(gift.wrapped().await.unwrap().give_to(&3).await.unwrap(), 4);
    assert_eq!(LockManager::in_memory().scope(LockedGift::<Plain>::none(5)).await.unwrap(), 5);
}

#[cache_lock(proxy = LockedLetter, prefix = "receivers:letter")]
trait Letter<'t>: Sized {
    #[cache_lock(key = id)]
    fn read(self, id: u64) -> Pin<Box<dyn Future<Output = Result<&'t str, LockError>> + Send + 't>>;

    #[cache_lock(key = id)]
    fn read_to<'a>(self, id: &'a u64) -> Pin<Box<dyn Future<Output = Result<&'t str, LockError>> + Send + 'a>>
    where
        Self: 'a;
}

#[derive(Clone)]
struct Text<'t>(&'t str);

impl<'t> Letter<'t> for Text<'t> {
    fn read(self, _: u64) -> Boxed<'t, &'t str> {
        Box::pin(async move { Ok(self.0) })
    }

    fn read_to<'a>(self, _: &'a u64) -> Boxed<'a, &'t str>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.0) })
    }
}

/// An implementation that borrows must live only as long as the future's lifetime says.
#[tokio::test]
async fn a_future_may_have_a_self_that_borrows() {
    let text = "a text".to_owned();
    let letter = LockedLetter::with_manager(Text(&text), LockManager::in_memory());
    assert_eq!(letter.clone().read(1).await.unwrap(), "a text");
    assert_eq!(letter.read_to(&1).await.unwrap(), "a text");
}
