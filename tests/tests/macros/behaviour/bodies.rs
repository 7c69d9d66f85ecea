//! Bodies under the lock: what they may contain, and how they may end.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use lock_runtime::{FencingToken, LockManager, cache_lock};
use tokio::time::sleep;

use crate::behaviour::{Result, ShopError, alone, hold};

#[cache_lock(prefix = "body", key = id)]
async fn early(id: u64) -> Result<&'static str, ShopError> {
    if id == 0 {
        return Err(ShopError::SoldOut);
    }
    let text: u64 = "5".parse().map_err(|_| ShopError::SoldOut)?;
    if id == text {
        return Ok("early");
    }
    Err(ShopError::SoldOut)?;
    Ok("never")
}

#[cache_lock(prefix = "body", key = "one at a time", on_fail = ())]
async fn step(inside: &AtomicU32, most: &AtomicU32) {
    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
    most.fetch_max(now, Ordering::SeqCst);
    sleep(Duration::from_millis(1)).await;
    inside.fetch_sub(1, Ordering::SeqCst);
}

#[cache_lock(prefix = "body", key = id)]
async fn not_send(id: Rc<u64>) -> Result<Rc<u64>> {
    let copy = Rc::clone(&id);
    tokio::task::yield_now().await;
    drop(id);
    Ok(copy)
}

#[cache_lock(prefix = "body", key = "k")]
async fn outer(depth: u32) -> Result<u32> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(Box::pin(outer(depth - 1)).await? + 1)
}

#[cache_lock(prefix = "body", key = "k", fenced = token, guard = guard)]
async fn fenced() -> Result<FencingToken> {
    assert_eq!(guard.fencing_token(), Some(token));
    assert!(guard.is_valid());
    Ok(token)
}

/// Rolls back when it is dropped, and records whether the lock was free by then.
#[derive(Debug)]
struct Transaction<'a>(&'a AtomicU32);

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let locks = LockManager::current().unwrap();
        if let Some(Ok(Some(_))) = locks.lock("body", "tx").try_acquire().now_or_never() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

struct Unit<'a> {
    amount: u32,
    transaction: Transaction<'a>,
}

#[cache_lock(prefix = "body", key = "tx")]
#[expect(unused_variables, reason = "the compiler warns, as it would without the attribute")]
async fn not_mentioned(transaction: Transaction<'_>) -> Result<()> {
    Ok(())
}

#[cache_lock(prefix = "body", key = "tx")]
async fn another_field(unit: Unit<'_>) -> Result<u32> {
    Ok(unit.amount)
}

/// The text contains the letters of the argument's name, but does not use the argument.
#[cache_lock(prefix = "body", key = "tx", on_fail = Err("no unit".to_owned()))]
async fn named_in_a_text(unit: Unit<'_>) -> std::result::Result<u32, String> {
    Ok(unit.amount)
}

#[cache_lock(prefix = "body", key = "tx")]
async fn there_or_not(
    #[cfg(test)] transaction: Transaction<'_>,
    #[cfg(not(test))] missing: Transaction<'_>,
    #[allow(unused_variables, reason = "the attribute takes effect")] id: u32,
) -> Result<()> {
    Ok(())
}

impl Unit<'_> {
    #[cache_lock(prefix = "body", key = "tx")]
    async fn of_self(self) -> Result<u32> {
        Ok(self.amount)
    }
}

#[cache_lock(prefix = "body", key = "tx")]
fn boxed(unit: Unit<'_>) -> std::pin::Pin<Box<dyn Future<Output = Result<u32>> + '_>> {
    Box::pin(async move { Ok(unit.amount) })
}

#[cache_lock(prefix = "body", key = "tx", on_fail = format!("{name}"))]
async fn used_after_the_body(name: String) -> String {
    String::new()
}

#[tokio::test]
async fn what_an_argument_does_when_it_is_dropped_is_done_under_the_lock() {
    alone(async {
        let unprotected = AtomicU32::new(0);
        let unit = || Unit { amount: 1, transaction: Transaction(&unprotected) };
        not_mentioned(unit().transaction).await.unwrap();
        another_field(unit()).await.unwrap();
        named_in_a_text(unit()).await.unwrap();
        there_or_not(unit().transaction, 7).await.unwrap();
        unit().of_self().await.unwrap();
        boxed(unit()).await.unwrap();
        assert_eq!(unprotected.load(Ordering::SeqCst), 0);
        drop(unit());
        assert_eq!(unprotected.load(Ordering::SeqCst), 1, "the test must see a drop without the lock");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_used_when_the_lock_fails_need_not_be_copied() {
    alone(async {
        let held = hold("body", "tx").await;
        assert_eq!(used_after_the_body("ada".to_owned()).await, "ada");
        drop(held);
        assert_eq!(used_after_the_body("ada".to_owned()).await, "");
    })
    .await;
}

#[tokio::test]
async fn return_and_question_mark_leave_the_body_only() {
    alone(async {
        assert!(matches!(early(0).await, Err(ShopError::SoldOut)));
        assert_eq!(early(5).await.unwrap(), "early");
        assert!(matches!(early(6).await, Err(ShopError::SoldOut)));
        // All of them released the lock.
        for id in ["0", "5", "6"] {
            drop(hold("body", id).await);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bodies_of_one_key_never_run_concurrently() {
    alone(async {
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let step = || step(&inside, &most);
        // Boxed, because four bodies with their wrappers are large for one stack frame.
        tokio::join!(Box::pin(step()), Box::pin(step()), Box::pin(step()), Box::pin(step()));
        assert_eq!(most.into_inner(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_body_may_hold_what_is_not_send() {
    assert_eq!(*alone(not_send(Rc::new(4))).await.unwrap(), 4);
}

#[tokio::test]
async fn a_body_that_calls_its_own_lock_enters() {
    assert_eq!(alone(outer(5)).await.unwrap(), 5);
}

#[tokio::test]
async fn fencing_tokens_grow() {
    alone(async {
        let first = fenced().await.unwrap();
        assert!(fenced().await.unwrap() > first);
    })
    .await;
}

#[tokio::test]
async fn a_panic_in_the_body_releases_the_lock() {
    #[cache_lock(prefix = "body", key = "panic")]
    async fn panics() -> Result<()> {
        "no number".parse::<u8>().unwrap();
        Ok(())
    }
    let locks = LockManager::in_memory();
    let inside = locks.clone();
    let task = tokio::spawn(async move { inside.scope(panics()).await });
    assert!(task.await.unwrap_err().is_panic());
    assert!(locks.lock("body", "panic").try_acquire().await.unwrap().is_some());
}
