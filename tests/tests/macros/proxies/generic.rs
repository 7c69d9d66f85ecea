//! Generic traits and methods, associated types and constants.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use lock_runtime::{LockError, LockKey, LockManager, cache_lock};
use tokio::sync::Mutex;

/// Rows by key, in a table of `ROOM` rows.
#[cache_lock(proxy = LockedRepository, prefix = "repository", timeout_s = 5)]
trait Repository<K: LockKey + Eq + Hash + Clone, const ROOM: usize = 4>
where
    K: Debug,
{
    type Row: Clone + Debug + 'static;
    type Rows<'a>: Iterator<Item = &'a Self::Row>
    where
        Self: 'a;
    type Error: From<LockError> + Debug;
    const NAME: &'static str;
    const MOST: usize = ROOM;

    /// Reads, changes and writes.
    #[cache_lock(key = key)]
    async fn update<F>(&self, key: &K, change: F) -> Result<Self::Row, Self::Error>
    where
        F: FnOnce(Option<Self::Row>) -> Self::Row;

    #[cache_lock(keys = keys, timeout_s = 1)]
    async fn sum<N: From<u8> + std::ops::AddAssign>(&self, keys: &[K]) -> Result<N, Self::Error>;

    fn capacity<const EXTRA: usize>(&self) -> usize {
        ROOM + EXTRA
    }

    fn name_of<T: ?Sized>() -> String;

    fn rows<'a>(rows: &'a [Self::Row]) -> Self::Rows<'a>
    where
        Self: 'a;
}

#[derive(Clone, Debug, Default)]
struct Table<K>(std::sync::Arc<Mutex<HashMap<K, u8>>>);

impl<K: LockKey + Eq + Hash + Clone + Debug> Repository<K, 8> for Table<K> {
    type Row = u8;
    type Rows<'a>
        = std::slice::Iter<'a, u8>
    where
        Self: 'a;
    type Error = LockError;
    const NAME: &'static str = "table";

    async fn update<F>(&self, key: &K, change: F) -> Result<u8, LockError>
    where
        F: FnOnce(Option<u8>) -> u8,
    {
        let old = self.0.lock().await.get(key).copied();
        tokio::task::yield_now().await;
        let new = change(old);
        self.0.lock().await.insert(key.clone(), new);
        Ok(new)
    }

    async fn sum<N: From<u8> + std::ops::AddAssign>(&self, keys: &[K]) -> Result<N, LockError> {
        let mut sum = N::from(0);
        for key in keys {
            sum += N::from(self.0.lock().await.get(key).copied().unwrap_or_default());
        }
        Ok(sum)
    }

    fn name_of<T: ?Sized>() -> String {
        std::any::type_name::<T>().to_owned()
    }

    fn rows<'a>(rows: &'a [u8]) -> std::slice::Iter<'a, u8>
    where
        Self: 'a,
    {
        rows.iter()
    }
}

async fn use_it<R: Repository<String, 8, Row = u8>>(rows: &R) -> u64
where
    R::Error: From<LockError>,
{
    let (a, b) = ("a".to_owned(), "b".to_owned());
    let updates = (0..20).map(|_| rows.update(&a, |old| old.unwrap_or_default() + 1));
    futures_util::future::join_all(updates).await;
    rows.update(&b, |_| 5).await.unwrap();
    rows.sum::<u64>(&[a, b]).await.unwrap()
}

#[tokio::test]
async fn generics_are_passed_on() {
    type Locked = LockedRepository<Table<String>>;

    let locks = LockManager::in_memory();
    let table = Table::<String>::default();
    let locked = LockedRepository::with_manager(table.clone(), locks);
    assert_eq!(use_it(&table).await, 6);
    table.0.lock().await.clear();
    assert_eq!(use_it(&locked).await, 25);
    assert_eq!(Repository::<String, 8>::capacity::<2>(&locked), 10);
    assert_eq!(<Locked as Repository<String, 8>>::name_of::<str>(), "str");
    assert_eq!((Locked::NAME, Locked::MOST), ("table", 8));
    assert_eq!(<Locked as Repository<String, 8>>::rows(&[1, 2]).sum::<u8>(), 3);
    let copy = locked.clone();
    assert!(format!("{copy:?}").starts_with("LockedRepository { inner: Table("), "{copy:?}");
}

/// Bounds on an associated type apply to the implementation's type.
#[cache_lock(proxy = LockedShelf, prefix = "shelf")]
trait Shelf<K: Into<Self::Item>>
where
    Self::Item: Clone + Debug,
    Option<Self::Item>: PartialEq,
{
    type Item;

    #[cache_lock(key = "all")]
    async fn put(&mut self, item: K) -> Result<Option<Self::Item>, LockError>;

    fn items(&self) -> Vec<Self::Item>;
}

impl Shelf<&str> for Vec<String> {
    type Item = String;

    async fn put(&mut self, item: &str) -> Result<Option<String>, LockError> {
        self.push(item.to_owned());
        Ok(self.last().cloned())
    }

    fn items(&self) -> Vec<String> {
        self.clone()
    }
}

#[tokio::test]
async fn bounds_on_associated_types_apply_to_the_implementations() {
    let mut shelf = LockedShelf::with_manager(Vec::new(), LockManager::in_memory());
    assert_eq!(shelf.put("a").await.unwrap().as_deref(), Some("a"));
    assert_eq!(shelf.items(), ["a"]);
}

/// A place for a vault of this kind.
trait Of<V> {}

/// The proxy requires `Send` of what is in a locked method's future, where the trait does not.
#[cache_lock(proxy = LockedVault, prefix = "vault")]
trait Vault<K: LockKey>: Sized {
    type Row;
    type Error: From<LockError>;
    type Place: Of<Self> + ?Sized;

    #[cache_lock(key = key)]
    fn put(
        &self,
        key: K,
        row: Self::Row,
        old: &Self::Row,
    ) -> impl Future<Output = Result<Self::Row, Self::Error>> + Send;

    #[cache_lock(key = key)]
    fn open(key: K) -> impl Future<Output = Result<Self, Self::Error>> + Send;

    fn place(&self) -> &Self::Place;
}

#[derive(Debug)]
struct Cellar;

impl<V> Of<V> for str {}

impl Vault<u64> for Cellar {
    type Row = String;
    type Error = LockError;
    type Place = str;

    async fn put(&self, _: u64, row: String, old: &String) -> Result<String, LockError> {
        Ok(row + old)
    }

    async fn open(_: u64) -> Result<Self, LockError> {
        Ok(Self)
    }

    fn place(&self) -> &'static str {
        "below"
    }
}

#[async_trait::async_trait]
#[cache_lock(proxy = LockedDoor, prefix = "door")]
trait Door {
    type Key;
    type Error;

    #[cache_lock(key = "all", on_fail = |_| Err(Self::busy()))]
    async fn unlock(&self, key: Self::Key) -> Result<Self::Key, Self::Error>;

    fn busy() -> Self::Error;
}

#[async_trait::async_trait]
impl Door for Cellar {
    type Key = String;
    type Error = &'static str;

    async fn unlock(&self, key: String) -> Result<String, &'static str> {
        Ok(key)
    }

    fn busy() -> &'static str {
        "busy"
    }
}

#[tokio::test]
async fn a_type_that_the_trait_leaves_open_may_be_in_a_future_that_moves() {
    let locks = LockManager::in_memory();
    let body = async {
        let vault = LockedVault::<Cellar>::open(7).await.unwrap();
        assert_eq!(vault.put(7, "new".to_owned(), &"old".to_owned()).await.unwrap(), "newold");
        assert_eq!(vault.place(), "below");
    };
    locks.scope(body).await;
    let door = LockedDoor::with_manager(Cellar, locks);
    let opened = tokio::spawn(async move { door.unlock("key".to_owned()).await });
    assert_eq!(opened.await.unwrap().unwrap(), "key");
}
