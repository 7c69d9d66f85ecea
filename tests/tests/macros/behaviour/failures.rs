//! What a call returns when the lock is not granted.

use std::time::Duration;

use lock_runtime::{LockError, cache_lock};
use tokio::time::Instant;

use crate::behaviour::{Result, ShopError, alone, hold};

#[cache_lock(prefix = "fail", key = "k", timeout_ms = 0)]
async fn converted() -> Result<u64, ShopError> {
    Ok(1)
}

#[cache_lock(prefix = "fail", key = "k", timeout = "0s", on_fail = fallback * 10)]
async fn value(mut fallback: u64) -> u64 {
    fallback += 1;
    fallback
}

#[cache_lock(prefix = "fail", key = "k", timeout_ms = 0, on_fail = if high { 40 } else { 4 } - 2)]
async fn begins_with_a_block(high: bool) -> i64 {
    i64::from(high)
}

#[cache_lock(prefix = "fail", key = "k", timeout = Duration::ZERO, on_fail = |err: LockError| format!("{name}: {}", err.is_timeout()))]
async fn closure(name: &str, moved: String) -> String {
    moved + name
}

#[cache_lock(prefix = "fail", key = key, on_fail = |error| Some(error))]
async fn reported(key: Option<u8>, after: i64) -> Option<LockError> {
    let _ = after;
    key?;
    None
}

#[cache_lock(prefix = "fail", key = "k", timeout_ms = 0, on_fail = |err| match err {
    LockError::Timeout { .. } => Ok(()),
    err => Err(err.into()),
})]
async fn job(key: &str) -> Result<(), ShopError> {
    assert!(key.is_empty());
    Ok(())
}

#[cache_lock(prefix = "fail", key = 1, timeout_s = seconds, on_fail = |error| Some(error))]
async fn negative(seconds: i64) -> Option<LockError> {
    None
}

#[tokio::test]
async fn a_busy_lock_becomes_the_error_or_the_value_that_was_asked_for() {
    alone(async {
        assert_eq!(value(4).await, 5);
        assert_eq!(closure("n", "m".into()).await, "mn");
        assert_eq!(converted().await.unwrap(), 1);
        let held = hold("fail", "k").await;
        assert_eq!(value(4).await, 40);
        assert_eq!(begins_with_a_block(true).await, 38);
        assert_eq!(closure("n", "m".into()).await, "n: true");
        assert!(matches!(converted().await, Err(ShopError::Lock(error)) if error.is_timeout()));
        assert!(job("busy").await.is_ok(), "another instance runs it");
        drop(held);
        assert_eq!(value(4).await, 5);
    })
    .await;
}

#[tokio::test]
async fn a_key_or_time_that_makes_no_sense_runs_no_body() {
    alone(async {
        assert!(matches!(reported(None, 0).await, Some(LockError::InvalidKey { .. })));
        assert!(reported(Some(1), 0).await.is_none());
        assert!(matches!(negative(-1).await, Some(LockError::InvalidSetting { setting: "timeout_s", .. })));
    })
    .await;
}

#[tokio::test]
async fn without_a_manager_the_fn_says_so() {
    assert!(matches!(converted().await, Err(ShopError::Lock(LockError::NotInstalled))));
    assert!(matches!(job("").await, Err(ShopError::Lock(LockError::NotInstalled))));
}

#[tokio::test(start_paused = true)]
async fn the_timeout_is_the_one_that_was_written() {
    #[cache_lock(prefix = "time", key = "k", timeout_ms = milliseconds)]
    async fn wait(milliseconds: u16) -> Result<()> {
        Ok(())
    }
    #[cache_lock(prefix = "time", key = "k", timeout_ms = 1_000 * 60 * 60 * 24 * 365)]
    async fn wait_for_a_year() -> Result<()> {
        Ok(())
    }
    alone(async {
        let _held = hold("time", "k").await;
        let start = Instant::now();
        assert!(wait(700).await.unwrap_err().is_timeout());
        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(700) && waited < Duration::from_millis(800), "{waited:?}");
        let waited = tokio::time::timeout(Duration::from_hours(6), wait_for_a_year()).await;
        assert!(waited.is_err());
    })
    .await;
}
