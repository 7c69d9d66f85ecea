//! Fns that return a future.

use std::future::Future;
use std::pin::Pin;

use lock_runtime::{LockManager, cache_lock};

use crate::shapes::{LOCKS, Result, assert_send};

type Made = Box<dyn Fn() -> u64 + Send>;

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

#[tokio::test]
async fn fns_that_return_futures_resolve_to_what_their_bodies_compute() -> Result<()> {
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
