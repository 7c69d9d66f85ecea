//! A trait with supertraits and provided methods.

use std::fmt::{self, Debug, Display};

use lock_runtime::{LockError, LockKey, LockManager, cache_lock};

trait Named {
    fn name(&self) -> String;
}

#[cache_lock(proxy = LockedService)]
trait Service: Named + Display + Debug + Clone + Send + Sync + 'static {
    #[cache_lock(prefix = "supertraits", key = (self.name(), id), timeout_ms = 0)]
    async fn call(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("the trait's version: {id}"))
    }

    #[cache_lock(prefix = "supertraits", key = "provided")]
    async fn provided(&self, (a, _): (u64, u64)) -> Result<u64, LockError> {
        Ok(a)
    }
}

#[derive(Clone, Debug)]
struct Own;

impl Named for Own {
    fn name(&self) -> String {
        "own".to_owned()
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Service for Own {
    async fn call(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{self}'s own version: {id}"))
    }
}

/// The user implements the supertraits for the proxy.
impl<T: Named> Named for LockedService<T> {
    fn name(&self) -> String {
        format!("locked {}", self.inner().name())
    }
}

impl<T: Display> Display for LockedService<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self.inner(), f)
    }
}

fn of_any<T: Service>(inner: T, locks: LockManager) -> impl Service
where
    LockedService<T>: Named + Display,
{
    LockedService::with_manager(inner, locks)
}

trait Stored {
    type Row: Send;
    type Problem;
}

trait StoredTwice: Stored {}

/// The methods name types of supertraits, one of them by its trait.
#[cache_lock(proxy = LockedRows)]
trait Rows: StoredTwice + Iterator
where
    <Self as Iterator>::Item: LockKey,
{
    #[cache_lock(prefix = "supertraits", key = id)]
    fn put(&self, id: <Self as Iterator>::Item, row: <Self as Stored>::Row) -> Result<(), LockError>;

    fn free(&self, rows: Vec<<Self as Stored>::Row>) -> Result<usize, <Self as Stored>::Problem>;
}

/// A type that only one supertrait has, named without the trait.
#[cache_lock(proxy = LockedTable)]
trait Table: StoredTwice + Send + Sync {
    #[cache_lock(prefix = "supertraits", key = "table")]
    async fn first(&self, row: Self::Row) -> Result<Self::Row, LockError>;
}

/// Bounds on `Self` other than supertraits.
#[cache_lock(proxy = LockedOffer)]
trait Offer<B: PartialEq<Self>>
where
    for<'a> &'a Self: IntoIterator<Item = u64>,
    Vec<Self>: Clone,
    Self: Sized,
{
    type Same: PartialEq<Self>;

    #[cache_lock(prefix = "supertraits", key = "offer")]
    fn sum(&self) -> Result<u64, LockError> {
        Ok(self.into_iter().sum())
    }
}

impl Stored for Own {
    type Row = u8;
    type Problem = String;
}

impl StoredTwice for Own {}

impl Iterator for Own {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        None
    }
}

impl Rows for Own {
    fn put(&self, id: u64, row: u8) -> Result<(), LockError> {
        assert_eq!((id, row), (1, 2));
        Ok(())
    }

    fn free(&self, rows: Vec<u8>) -> Result<usize, String> {
        Ok(rows.len())
    }
}

impl Table for Own {
    async fn first(&self, row: u8) -> Result<u8, LockError> {
        Ok(row)
    }
}

macro_rules! stored {
    ($($proxy:ident)*) => {
        $(impl<T: Stored> Stored for $proxy<T> {
            type Row = T::Row;
            type Problem = T::Problem;
        }

        impl<T: Stored> StoredTwice for $proxy<T> {})*
    };
}

stored!(LockedRows LockedTable);

#[derive(Clone)]
struct Prices(Vec<u64>);

struct Buyer;

impl<T> PartialEq<T> for Buyer {
    fn eq(&self, _: &T) -> bool {
        false
    }
}

impl<'a> IntoIterator for &'a Prices {
    type Item = u64;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, u64>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().copied()
    }
}

impl Offer<Buyer> for Prices {
    type Same = Buyer;
}

impl<'a> IntoIterator for &'a LockedOffer<Prices> {
    type Item = u64;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, u64>>;

    fn into_iter(self) -> Self::IntoIter {
        self.inner().into_iter()
    }
}

#[test]
fn bounds_on_self_apply_to_the_implementation() {
    let offer = LockedOffer::with_manager(Prices(vec![1, 2]), LockManager::in_memory());
    assert_eq!(Offer::<Buyer>::sum(&offer).unwrap(), 3);
}

impl<T: Iterator> Iterator for LockedRows<T> {
    type Item = T::Item;

    fn next(&mut self) -> Option<T::Item> {
        None
    }
}

#[tokio::test]
async fn a_type_of_a_supertrait_is_the_same_for_the_proxy_and_its_implementation() {
    let locks = LockManager::in_memory();
    assert_eq!(LockedTable::with_manager(Own, locks.clone()).first(7).await.unwrap(), 7);
    let put = move || LockedRows::with_manager(Own, locks).put(1, 2);
    std::thread::spawn(put).join().unwrap().unwrap();
    assert_eq!(LockedRows::new(Own).free(vec![1, 2]).unwrap(), 2);
}

#[tokio::test]
async fn the_implementations_own_version_is_called() {
    let locks = LockManager::in_memory();
    let service = of_any(Own, locks.clone());
    assert_eq!(service.call(1).await.unwrap(), "own's own version: 1");
    assert_eq!(service.clone().provided((2, 3)).await.unwrap(), 2);
    let _held = locks.lock("supertraits", &("locked own", 1)).acquire().await.unwrap();
    assert!(service.call(1).await.unwrap_err().is_timeout());
    assert_eq!(service.call(2).await.unwrap(), "own's own version: 2");
}
