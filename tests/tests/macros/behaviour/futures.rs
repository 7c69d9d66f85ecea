//! Locked fns that are not `async` but return a future.

use std::pin::Pin;
use std::sync::Mutex;

use lock_runtime::cache_lock;

use crate::behaviour::{Result, alone, hold};

type Log = Mutex<Vec<&'static str>>;

fn note(log: &Log, what: &'static str) -> u64 {
    log.lock().unwrap().push(what);
    1
}

#[cache_lock(prefix = "f", key = note(log, "key"), timeout_ms = note(log, "timeout"))]
fn returns_impl(log: &Log) -> impl Future<Output = Result<()>> {
    note(log, "before the future");
    async move {
        note(log, "future");
        Ok(())
    }
}

#[cache_lock(prefix = "f", key = note(log, "key"), guard = guard)]
fn returns_box<'a>(log: &'a Log) -> Pin<Box<dyn Future<Output = Result<String>> + Send + 'a>> {
    note(log, "before the future");
    Box::pin(async move {
        note(log, "future");
        Ok(guard.key().to_owned())
    })
}

#[tokio::test]
async fn options_and_key_are_evaluated_at_the_call_and_the_body_under_the_lock() {
    let log = Log::default();
    let future = returns_impl(&log);
    assert_eq!(log.lock().unwrap().split_off(0), ["key", "timeout"]);
    // The scope is looked up now.
    alone(async {
        let held = hold("f", "1").await;
        assert!(future.await.unwrap_err().is_timeout());
        assert_eq!(log.lock().unwrap().len(), 0);
        drop(held);
        returns_impl(&log).await.unwrap();
        let seen = log.lock().unwrap().split_off(0);
        assert_eq!(seen, ["key", "timeout", "before the future", "future"]);
    })
    .await;
}

#[tokio::test]
async fn a_boxed_future_is_locked_in_the_same_way() {
    let log = Log::default();
    let future = returns_box(&log);
    assert_eq!(*log.lock().unwrap(), ["key"]);
    assert_eq!(alone(future).await.unwrap(), "f:1");
    assert_eq!(*log.lock().unwrap(), ["key", "before the future", "future"]);
}
