//! Locked fns with several keys.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Mutex;

use lock_runtime::{FencingToken, LockError, LockGuard, LockManager, cache_lock};

use crate::behaviour::{Result, alone};

struct Order {
    seats: Vec<String>,
}

impl Order {
    #[cache_lock(prefix = "seat", keys = self.seats, guard = guard)]
    async fn reserve(&self) -> Result<usize> {
        Ok(guard.keys().len())
    }
}

struct Basket {
    orders: Mutex<Vec<Order>>,
}

impl Basket {
    fn first(&self) -> Order {
        Order { seats: self.orders.lock().unwrap()[0].seats.clone() }
    }

    #[cache_lock(prefix = "seat", keys = self.first().seats, guard = guard)]
    async fn of_a_call(&self) -> Result<usize> {
        Ok(guard.keys().len())
    }

    #[cache_lock(prefix = "seat", keys = self.orders.lock().unwrap()[1].seats, guard = guard)]
    async fn behind_a_guard(&self) -> Result<usize> {
        Ok(guard.keys().len() + self.orders.lock().unwrap().len())
    }
}

#[cache_lock(prefix = "account", keys = [from, to], timeout_ms = 0, guard = guard)]
async fn transfer(from: u64, to: u64, amount: u64) -> Result<Vec<String>> {
    assert!(amount > 0);
    Ok(guard.keys().into_iter().map(str::to_owned).collect())
}

#[cache_lock(prefix = "name", keys = [first, second])]
async fn texts(first: String, second: String) -> Result<String> {
    Ok(first + &second)
}

#[cache_lock(prefix = "list", keys = ids, fenced = tokens)]
async fn listed(ids: &[u64]) -> Result<Vec<FencingToken>> {
    assert_eq!(ids.len(), tokens.len());
    Ok(tokens)
}

#[cache_lock(prefix = "list", keys = ids)]
async fn moved(ids: BTreeSet<u64>) -> Result<BTreeSet<u64>> {
    Ok(ids)
}

#[cache_lock(prefix = "list", keys = ids)]
async fn sorted(ids: &mut Vec<u64>) -> Result<()> {
    ids.sort_unstable();
    Ok(())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn iterated(ids: impl Iterator<Item = u64>) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn generic<I>(ids: I) -> Result<usize>
where
    I: IntoIterator<Item = u64>,
{
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn ranged(ids: Range<u64>) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn ranged_to_its_end(ids: RangeInclusive<u64>) -> Result<usize> {
    Ok(guard.keys().len())
}

type Ids = Range<u64>;

#[cache_lock(prefix = "list", keys = { ids }, guard = guard)]
async fn braced(ids: Ids) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids.into_iter().map(|id| id + 1), guard = guard)]
async fn taken_apart(ids: Vec<u64>) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn owned(ids: std::vec::IntoIter<u64>) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn boxed(ids: Box<dyn Iterator<Item = u64> + Send>) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, guard = guard)]
async fn behind_a_reference(ids: &mut (dyn Iterator<Item = u64> + Send)) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids, manager = locks, guard = guard)]
fn threaded<'a, I: ExactSizeIterator<Item = &'a String>>(locks: &LockManager, ids: I) -> Result<usize> {
    Ok(guard.keys().len())
}

#[cache_lock(prefix = "list", keys = ids.iter().map(|id| id + 1), guard = guard)]
async fn computed(ids: Vec<u64>) -> Result<usize> {
    Ok(guard.keys().len() + ids.len())
}

#[cache_lock(prefix = "pair", keys = [(1, id), (2, id)], on_fail = |err: LockError| err.key().map(str::to_owned))]
async fn pairs(id: u64) -> Option<String> {
    None
}

#[cache_lock(prefix = "later", keys = [a, b])]
fn later(a: u64, b: u64) -> impl Future<Output = Result<u64>> {
    async move { Ok(a + b) }
}

async fn is_locked(name: &str, key: u64) -> bool {
    let locks = LockManager::current().unwrap();
    locks.lock(name, &key).try_acquire().await.unwrap().is_none()
}

#[tokio::test(start_paused = true)]
async fn a_fn_with_several_keys_holds_all_of_them() {
    alone(async {
        assert_eq!(transfer(7, 3, 1).await.unwrap(), ["account:3", "account:7"]);
        assert_eq!(transfer(7, 7, 1).await.unwrap(), ["account:7"]);
        let locks = LockManager::current().unwrap();
        let busy: LockGuard = locks.lock("account", &7_u64).acquire().await.unwrap();
        let error = transfer(3, 7, 1).await.unwrap_err();
        assert_eq!(error.key(), Some("account:7"));
        assert!(!is_locked("account", 3).await);
        busy.release().await.unwrap();
        assert_eq!(later(1, 2).await.unwrap(), 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_are_borrowed_and_not_moved() {
    alone(async {
        assert_eq!(texts("a".into(), "b".into()).await.unwrap(), "ab");
        let order = Order { seats: vec!["12a".into(), "12b".into()] };
        assert_eq!(order.reserve().await.unwrap(), 2);
        assert_eq!(moved(BTreeSet::from([1, 2])).await.unwrap().len(), 2);
        assert_eq!(computed(vec![1, 2, 2]).await.unwrap(), 5);
        assert!(matches!(listed(&[]).await, Err(LockError::InvalidKey { .. })));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_may_borrow_from_a_temporary() {
    alone(async {
        let order = |seats: &[&str]| Order { seats: seats.iter().map(ToString::to_string).collect() };
        let basket = Basket { orders: Mutex::new(vec![order(&["12a", "12b"]), order(&["7c"])]) };
        assert_eq!(basket.of_a_call().await.unwrap(), 2);
        assert_eq!(basket.behind_a_guard().await.unwrap(), 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_argument_is_borrowed_again_or_used_up_where_it_must_be() {
    alone(async {
        let mut ids = vec![3, 1, 2];
        sorted(&mut ids).await.unwrap();
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(iterated(ids.iter().copied()).await.unwrap(), 3);
        assert_eq!(generic(ids).await.unwrap(), 3);
        assert_eq!(ranged(1..4).await.unwrap(), 3);
        assert_eq!(ranged_to_its_end(1..=4).await.unwrap(), 4);
        assert_eq!(braced(1..4).await.unwrap(), 3);
        assert_eq!(taken_apart(vec![1, 2]).await.unwrap(), 2);
        assert_eq!(owned(vec![1, 2].into_iter()).await.unwrap(), 2);
        assert_eq!(boxed(Box::new(1..4)).await.unwrap(), 3);
        assert_eq!(behind_a_reference(&mut (1..4)).await.unwrap(), 3);
        let names = ["a".to_owned(), "b".to_owned()];
        let locks = LockManager::current().unwrap();
        let held = std::thread::scope(|scope| scope.spawn(|| threaded(&locks, names.iter())).join().unwrap());
        assert_eq!(held.unwrap(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tokens_are_in_the_order_of_the_keys() {
    alone(async {
        let tokens = listed(&[9, 4, 9]).await.unwrap();
        assert_eq!((tokens.len(), tokens[0]), (3, tokens[2]));
        assert_ne!(tokens[0], tokens[1]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_names_the_key_that_was_busy() {
    alone(async {
        let locks = LockManager::current().unwrap();
        let _busy = locks.lock("pair", &(2, 5)).acquire().await.unwrap();
        assert_eq!(pairs(5).await.as_deref(), Some("pair:2:5"));
    })
    .await;
}
