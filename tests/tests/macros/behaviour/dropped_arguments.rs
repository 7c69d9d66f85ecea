//! The order in which arguments are dropped: last one first, as in a fn without the attribute, and all of them under the lock.

#![deny(warnings)]

use std::cell::RefCell;
use std::pin::Pin;

use async_trait::async_trait;
use lock_runtime::testing::{TestLocks, is_locked_here};
use lock_runtime::{LockError, LockManager, cache_lock};

use crate::behaviour::Result;

thread_local! {
    static DROPPED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records its drop, and whether the lock was held.
struct Noted(&'static str, bool);

impl Noted {
    fn new(name: &'static str) -> Self {
        Self(name, false)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let locked = if is_locked_here("dropped", "k") { "" } else { " without the lock" };
        let changed = if self.1 { " changed" } else { "" };
        DROPPED.with_borrow_mut(|dropped| dropped.push(format!("{}{changed}{locked}", self.0)));
    }
}

fn dropped() -> Vec<String> {
    DROPPED.take()
}

/// A body that changes a value which only a destructor reads must give no warning.
#[cache_lock(prefix = "dropped", key = "k")]
async fn asynchronous(a: Noted, mut b: Noted, (c, d): (Noted, Noted), _e: Noted) -> Result<()> {
    b.1 = true;
    let _ = (c.0, &a);
    let _ = &d;
    Ok(())
}

#[cache_lock(prefix = "dropped", key = "k", manager = locks, on_fail = |b: LockError| Err(b))]
fn blocking(locks: &LockManager, a: Noted, mut b: Noted, c: Noted) -> Result<()> {
    b.1 = true;
    let _ = (&c, &a);
    Ok(())
}

#[async_trait]
trait Works {
    async fn work(mut self, a: Noted, mut b: Noted) -> Result<()>;
}

#[async_trait]
impl Works for Noted {
    #[cache_lock(prefix = "dropped", key = "k")]
    async fn work(mut self, a: Noted, mut b: Noted) -> Result<()> {
        self.1 = true;
        b.1 = true;
        let _ = a.0;
        Ok(())
    }
}

impl Noted {
    #[cache_lock(prefix = "dropped", key = "k")]
    async fn end(mut self, a: Noted) -> Result<()> {
        self.1 = true;
        let _ = a.0;
        Ok(())
    }

    #[cache_lock(prefix = "dropped", key = "k", on_fail = |a| Err(a))]
    fn end_boxed(self, a: Noted) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        let name = self.0;
        Box::pin(async move {
            assert_eq!((name, a.0), ("self", "a"));
            Ok(())
        })
    }
}

#[tokio::test]
async fn arguments_are_dropped_in_their_order_and_under_the_lock() {
    let test = TestLocks::new();
    test.manager()
        .scope(async {
            asynchronous(Noted::new("a"), Noted::new("b"), (Noted::new("c"), Noted::new("d")), Noted::new("e"))
                .await
                .unwrap();
            assert_eq!(dropped(), ["e", "d", "c", "b changed", "a"]);
            Noted::new("self").work(Noted::new("a"), Noted::new("b")).await.unwrap();
            assert_eq!(dropped(), ["b changed", "a", "self changed"]);
            Noted::new("self").end(Noted::new("a")).await.unwrap();
            assert_eq!(dropped(), ["a", "self changed"]);
            // A fn that returns a future has no order of its own. `on_fail` uses no argument here: the name is its own variable.
            Noted::new("self").end_boxed(Noted::new("a")).await.unwrap();
            assert_eq!(dropped(), ["a", "self"]);
        })
        .await;
    let locks = test.manager().clone();
    let dropped = tokio::task::spawn_blocking(move || {
        blocking(&locks, Noted::new("a"), Noted::new("b"), Noted::new("c")).map(|()| dropped())
    });
    assert_eq!(dropped.await.unwrap().unwrap(), ["c", "b changed", "a"]);
}
