//! Free fns: their arguments, generics, return types and options.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use lock_runtime::{FencingToken, LockError, LockKey, LockManager, cache_lock};

use crate::shapes::{LOCKS, PREFIX, Result, Seat, assert_send};

#[cache_lock(prefix = "shapes", key = id)]
async fn plain(id: u64) -> Result<u64> {
    tokio::task::yield_now().await;
    Ok(id)
}

/// Documented.
#[must_use = "for a reason"]
#[cache_lock(prefix = "shapes", key = "all", on_fail = 0)]
#[doc(hidden)]
pub(crate) async fn attributed() -> u64 {
    7
}

/// The types of the returned closure's arguments must be written out.
#[cache_lock(prefix = "shapes", key = least)]
async fn returned_closure(least: u32) -> Result<impl Fn(&Seat) -> bool> {
    Ok(move |seat: &Seat| seat.number >= least)
}

#[cache_lock(prefix = "shapes", key = least)]
async fn boxed_closure(least: u32) -> Result<Box<dyn Fn(&Seat) -> bool + Send>> {
    Ok(Box::new(move |seat| seat.number >= least))
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
    #![allow(clippy::no_effect_underscore_binding, reason = "an inner attribute stays in place")]
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

macro_rules! locked {
    ($name:ident($argument:ident: $ty:ty) -> $returns:ty = $prefix:literal, $key:expr, $body:block) => {
        #[cache_lock(prefix = $prefix, key = $key, timeout_ms = 5)]
        async fn $name($argument: $ty) -> $returns $body
    };
}

macro_rules! locked_item {
    ($key:expr, $item:item) => {
        #[cache_lock(prefix = "shapes", key = $key)]
        $item
    };
}

locked_item! { id, async fn item_of_macro(id: u64) -> Result<u64> { Ok(id) } }

locked!(from_macro(id: u64) -> Result<u64> = "shapes", (id, id + 1), { Ok(id) });

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
            assert!(assert_send(returned_closure(7)).await?(&seat));
            assert!(!assert_send(boxed_closure(8)).await?(&seat));
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
            assert_eq!(assert_send(item_of_macro(4)).await?, 4);
            Ok(())
        })
        .await
}
