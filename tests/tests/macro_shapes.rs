//! Every fn shape and option, in a crate that allows no warning: the expansion must be as clean as the code around it.

#![deny(warnings, clippy::all, clippy::pedantic, rust_2018_idioms, unused, let_underscore_drop)]
#![deny(clippy::allow_attributes_without_reason, clippy::shadow_unrelated, clippy::unwrap_used)]
#![deny(unused_qualifications, unused_lifetimes, single_use_lifetimes, missing_debug_implementations)]

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lock_runtime::{FencingToken, LockError, LockGuard, LockKey, LockManager, cache_lock};

type Result<T, E = LockError> = std::result::Result<T, E>;

type Made = Box<dyn Fn() -> u64 + Send>;

const PREFIX: &str = "shapes:const";
static LOCKS: LazyLock<LockManager> = LazyLock::new(LockManager::in_memory);

mod nested {
    pub(crate) const PREFIX: &str = "shapes:nested";
}

/// A key with marked fields.
#[derive(LockKey, Debug, Clone)]
pub struct Seat {
    #[lock_key]
    train: String,
    #[lock_key]
    number: u32,
    price: u64,
}

#[derive(LockKey, Debug, Clone, Copy)]
enum Room {
    Lobby,
    Numbered(u32),
    Suite {
        #[lock_key]
        floor: u8,
        #[lock_key]
        wing: char,
        beds: u8,
    },
}

#[derive(LockKey, Debug)]
struct Tagged<'a, T, const N: usize>
where
    T: Clone,
{
    #[lock_key]
    name: &'a str,
    #[lock_key]
    inner: Option<T>,
    rest: [u8; N],
}

// Free fns.

#[cache_lock(prefix = "shapes", key = id)]
async fn plain(id: u64) -> Result<u64> {
    tokio::task::yield_now().await;
    Ok(id)
}

/// Documented.
#[must_use = "for a reason"]
#[cache_lock(prefix = "shapes", key = "all", on_fail = 0)]
#[doc(hidden)]
pub async fn attributed() -> u64 {
    7
}

#[cache_lock(prefix = PREFIX, key = (user, id), timeout_ms = 500, expire_s = 2, renew)]
async fn owned(user: String, id: u64) -> Result<String> {
    drop(user.clone());
    Ok(user + &id.to_string())
}

#[cache_lock(prefix = "shapes", key = items.first(), guard = guard, fenced = token)]
async fn named(items: Vec<u64>) -> Result<(String, FencingToken)> {
    tokio::task::yield_now().await;
    drop(items);
    Ok((guard.key().to_owned(), token))
}

#[cache_lock(prefix = "shapes", key = id)]
async fn mutable(mut id: u64, mut text: String, list: &mut Vec<u64>) -> Result<String> {
    id += 1;
    text.push('!');
    list.push(id);
    Ok(format!("{text}{id}"))
}

#[cache_lock(prefix = "shapes", timeout = "10ms", expire = "1m", on_lost = "continue")]
async fn patterns(
    #[locked_object] axum::extract::Path(id): axum::extract::Path<u64>,
    (left, right): (u8, u8),
    [first, ..]: [u8; 3],
    _: bool,
) -> Result<u64> {
    Ok(id + u64::from(left) + u64::from(right) + u64::from(first))
}

#[cache_lock(prefix = "shapes", timeout = Duration::from_millis(5), expire = Duration::from_secs(5), renew = renew)]
async fn generic<'a, T, const N: usize>(
    #[locked_object] key: &'a T,
    #[locked_complex_object(field = "number")] seat: &Seat,
    all: [u8; N],
    renew: bool,
) -> Result<&'a T>
where
    T: LockKey + ?Sized + Sync,
{
    tokio::task::yield_now().await;
    let _: u64 = seat.price + all.len() as u64;
    Ok(key)
}

#[cache_lock(prefix = "shapes", key = key.as_ref())]
async fn impl_in_and_out(key: impl AsRef<str>, end: u64) -> Result<impl Iterator<Item = u64>, LockError> {
    if end == 0 {
        return Ok(0..1);
    }
    drop(key);
    Ok(0..end)
}

#[cache_lock(prefix = "shapes", key = id, on_fail = 0..id)]
async fn impl_alone(id: u64) -> impl Iterator<Item = u64> + Clone {
    0..id
}

#[cache_lock(prefix = "shapes", key = id, on_fail = |err: LockError| format!("{err} {id} {name}"))]
async fn closure(id: u64, name: &str) -> String {
    name.repeat(usize::try_from(id).unwrap_or_default())
}

#[cache_lock(prefix = "shapes", key = id, on_fail = |err| {
    if err.is_timeout() {
        return None;
    }
    None
})]
async fn inferred_closure(id: u64) -> Option<u64> {
    let half = id.checked_div(2)?;
    Some(half)
}

#[cache_lock(prefix = "shapes", key = id, on_fail = ())]
async fn nothing(id: u64) {
    let _: u64 = id;
}

#[cache_lock(prefix = "shapes", key = id)]
async fn question_mark(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let number: u64 = "7".parse()?;
    if number == id {
        return Err("same".into());
    }
    Ok(number)
}

#[cache_lock(prefix = "shapes", key = depth)]
async fn recursive(depth: u64) -> Result<u64> {
    if depth == 0 {
        return Ok(0);
    }
    let below: Pin<Box<dyn Future<Output = Result<u64>>>> = Box::pin(recursive(depth - 1));
    Ok(below.await? + 1)
}

#[cache_lock(prefix = "shapes", key = id)]
async fn not_send(id: Rc<u64>) -> Result<Rc<u64>> {
    let other = Rc::clone(&id);
    tokio::task::yield_now().await;
    Ok(other)
}

#[cache_lock(key = 1)]
async fn default_prefix() -> Result<()> {
    #![allow(clippy::no_effect_underscore_binding, reason = "an inner attribute stays where it was")]
    #[cache_lock(key = 2)]
    async fn inner() -> Result<()> {
        Ok(())
    }
    let _unused = 1;
    inner().await
}

#[cache_lock(prefix = "shapes", key = 7, manager = &*LOCKS)]
async fn r#type() -> Result<()> {
    Ok(())
}

#[tracing::instrument(skip_all, fields(id))]
#[cache_lock(prefix = "shapes", key = id)]
async fn instrumented_above(id: u64) -> Result<u64> {
    Ok(id)
}

#[cache_lock(prefix = "shapes", key = id)]
#[tracing::instrument(ret, err)]
async fn instrumented_below(id: u64) -> Result<u64> {
    Ok(id)
}

// Fns that return a future.

#[cache_lock(prefix = "shapes", key = id)]
fn returns_impl(id: &u64) -> impl Future<Output = Result<u64>> + Send {
    let twice = *id * 2;
    async move { Ok(twice) }
}

#[cache_lock(prefix = "shapes", key = id, manager = *LOCKS)]
fn returns_impl_of_impl(id: u64) -> impl Future<Output = Result<impl Iterator<Item = u64>>> {
    async move { Ok(0..id) }
}

#[cache_lock(prefix = "shapes", key = id)]
fn returns_boxed<'a>(id: &'a mut u64) -> Pin<Box<dyn Future<Output = Result<&'a mut u64>> + Send + 'a>> {
    if *id == 0 {
        return Box::pin(async move { Ok(id) });
    }
    *id += 1;
    Box::pin(async move {
        tokio::task::yield_now().await;
        Ok(id)
    })
}

#[cache_lock(prefix = "shapes", key = id, guard = guard)]
fn returns_boxed_with_guard(
    id: u64,
) -> ::core::pin::Pin<::std::boxed::Box<dyn ::core::future::Future<Output = Result<String>> + Send>> {
    let name = guard.key();
    Box::pin(async move { Ok(format!("{name} {id}")) })
}

#[cache_lock(prefix = "shapes", key = id)]
fn returns_dyn(id: u64) -> impl Future<Output = Result<Made>> {
    let id = id + 1;
    async move { Ok(Box::new(move || id) as _) }
}

#[cache_lock(prefix = "shapes", key = id)]
fn lone_box(id: u64) -> Pin<Box<dyn Future<Output = Result<Made>>>> {
    Box::pin(async move {
        if id == 0 {
            return Ok(Box::new(|| 0));
        }
        Ok(Box::new(move || id))
    })
}

// Methods.

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

macro_rules! locked {
    ($name:ident($argument:ident: $ty:ty) -> $returns:ty = $prefix:literal, $key:expr, $body:block) => {
        #[cache_lock(prefix = $prefix, key = $key, timeout_ms = 5)]
        async fn $name($argument: $ty) -> $returns $body
    };
}

locked!(from_macro(id: u64) -> Result<u64> = "shapes", (id, id + 1), { Ok(id) });

fn assert_send<T: Send>(value: T) -> T {
    value
}

fn shop() -> Shop {
    let locks = LockManager::in_memory();
    Shop { shared: Arc::new(locks.clone()), locks, id: 1, stock: 50, timeout: Duration::from_millis(100) }
}

#[tokio::test]
async fn free_fns_return_what_their_bodies_compute() -> Result<()> {
    LockManager::in_memory()
        .scope(async {
            assert_eq!(assert_send(plain(3)).await?, 3);
            assert_eq!(attributed().await, 7);
            assert_eq!(assert_send(owned("a".to_owned(), 3)).await?, "a3");
            assert_eq!(assert_send(named(vec![9, 8])).await?.0, "shapes:9");
            let mut list = Vec::new();
            assert_eq!(assert_send(mutable(1, "t".to_owned(), &mut list)).await?, "t!2");
            assert_eq!(list, [2]);
            assert_eq!(assert_send(patterns(axum::extract::Path(5), (1, 2), [3, 4, 5], true)).await?, 11);
            let seat = Seat { train: "ice".to_owned(), number: 7, price: 3 };
            assert_eq!(assert_send(generic("k", &seat, [0; 2], true)).await?, "k");
            assert_eq!(assert_send(impl_in_and_out("k", 4)).await?.sum::<u64>(), 6);
            assert_eq!(assert_send(impl_alone(4)).await.sum::<u64>(), 6);
            assert_eq!(assert_send(closure(2, "n")).await, "nn");
            assert_eq!(assert_send(inferred_closure(2)).await, Some(1));
            assert_send(nothing(2)).await;
            assert!(assert_send(question_mark(2)).await.is_ok());
            assert_eq!(recursive(3).await?, 3);
            assert_eq!(*not_send(Rc::new(4)).await?, 4);
            assert_send(default_prefix()).await?;
            assert_send(r#type()).await?;
            assert_eq!(assert_send(instrumented_above(4)).await?, 4);
            assert_eq!(assert_send(instrumented_below(4)).await?, 4);
            assert_eq!(assert_send(from_macro(4)).await?, 4);
            Ok(())
        })
        .await
}

#[tokio::test]
async fn fns_that_return_futures_do_too() -> Result<()> {
    LockManager::in_memory()
        .scope(async {
            assert_eq!(assert_send(returns_impl(&4)).await?, 8);
            assert_eq!(returns_impl_of_impl(4).await?.sum::<u64>(), 6);
            let mut id = 4;
            assert_eq!(*assert_send(returns_boxed(&mut id)).await?, 5);
            assert_eq!(returns_boxed_with_guard(4).await?, "shapes:4 4");
            assert_eq!(assert_send(returns_dyn(4)).await?(), 5);
            assert_eq!(lone_box(4).await?(), 4);
            Ok(())
        })
        .await
}

#[tokio::test]
async fn methods_do_too() -> Result<()> {
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

#[tokio::test]
async fn derived_keys_write_their_marked_fields() -> Result<()> {
    let locks = LockManager::in_memory();
    let name = async |key: &dyn LockKey| -> Result<String> {
        let guard: LockGuard = locks.lock("p", key).acquire().await?;
        Ok(guard.key().to_owned())
    };
    let seat = Seat { train: "ice".to_owned(), number: 7, price: 3 };
    assert_eq!(name(&seat).await?, "p:ice:7");
    assert_eq!(name(&Room::Lobby).await?, "p:Lobby");
    assert_eq!(name(&Room::Numbered(7)).await?, "p:Numbered:7");
    let suite = Room::Suite { floor: 1, wing: 'b', beds: 2 };
    assert_eq!(name(&suite).await?, "p:Suite:1:b");
    if let Room::Suite { beds, .. } = suite {
        assert_eq!(beds, 2);
    }
    let tagged = Tagged { name: "n", inner: Some(seat), rest: [0; 1] };
    assert_eq!(name(&tagged).await?, "p:n:ice:7");
    assert_eq!(tagged.rest, [0]);
    Ok(())
}
