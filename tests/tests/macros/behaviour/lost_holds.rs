//! What happens to a body whose hold is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, cache_lock};
use tokio::time::sleep;

use crate::behaviour::{Result, alone};

#[cache_lock(prefix = "lost", key = "k", expire_ms = 100, renew = false)]
async fn cancelled(done: &AtomicU32) -> Result<()> {
    sleep(Duration::from_secs(5)).await;
    done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[cache_lock(prefix = "lost", key = "k", expire = "100ms", renew = false, on_lost = "continue")]
async fn continued(done: &AtomicU32) -> Result<()> {
    sleep(Duration::from_secs(5)).await;
    done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[cache_lock(prefix = "lost", key = "k", expire_ms = 100, renew = false, on_fail = fallback)]
async fn replaced(fallback: u8) -> u8 {
    sleep(Duration::from_secs(5)).await;
    2
}

#[cache_lock(prefix = "lost", key = "k", expire_ms = 100, renew = long)]
async fn renewed(long: bool) -> Result<()> {
    sleep(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_lease_ends_is_stopped_or_runs_on_as_asked() {
    alone(async {
        let done = AtomicU32::new(0);
        let error = cancelled(&done).await.unwrap_err();
        assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error}");
        assert_eq!(done.load(Ordering::SeqCst), 0);
        let error = continued(&done).await.unwrap_err();
        assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error}");
        assert_eq!(done.load(Ordering::SeqCst), 1);
        assert_eq!(replaced(0).await, 0);
    })
    .await;
}

#[cache_lock(prefix = "lost", key = "k", expire_ms = 100, max_hold = "1s")]
async fn limited(steps: &AtomicU32) -> Result<()> {
    loop {
        sleep(Duration::from_millis(90)).await;
        steps.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_renewed_until_its_longest_hold_is_over_and_the_error_says_why() {
    alone(async {
        let steps = AtomicU32::new(0);
        let error = limited(&steps).await.unwrap_err();
        assert!(matches!(error, LockError::Lost { completed: false, max_hold: Some(_), .. }), "{error:?}");
        assert_eq!(error.to_string(), "lock `lost:k` was held for its `max_hold` of 1s; what ran under it was stopped");
        assert_eq!(steps.load(Ordering::SeqCst), 11);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_when_asked() {
    alone(async {
        assert!(renewed(false).await.unwrap_err().is_lost());
        renewed(true).await.unwrap();
    })
    .await;
}
