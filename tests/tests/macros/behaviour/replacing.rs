//! Calls that take the lock from its holder.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, cache_lock};
use tokio::time::sleep;

use crate::behaviour::{Result, alone};

#[cache_lock(prefix = "export", key = report, on_busy = "replace", timeout_s = 5)]
async fn export(report: u64, done: &AtomicU32) -> Result<()> {
    sleep(Duration::from_secs(3)).await;
    done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[cache_lock(prefix = "export", key = report, on_busy = "wait", timeout_ms = 10)]
async fn queue(report: u64) -> Result<()> {
    Ok(())
}

struct Reports;

#[cache_lock(prefix = "export", on_busy = "replace")]
impl Reports {
    #[cache_lock(key = report)]
    async fn export(&self, report: u64) -> Result<()> {
        sleep(Duration::from_secs(3)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_of_three_exports_completes() {
    alone(async {
        let done = AtomicU32::new(0);
        let later = async |after: u64| {
            sleep(Duration::from_secs(after)).await;
            export(7, &done).await
        };
        let (first, second, third) = tokio::join!(later(0), later(1), later(2));
        for replaced in [first, second] {
            assert!(matches!(replaced, Err(LockError::Lost { completed: false, forced: true, .. })), "{replaced:?}");
        }
        third.unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_does_not_replace_the_holder() {
    alone(async {
        let done = AtomicU32::new(0);
        let later = async {
            sleep(Duration::from_secs(1)).await;
            queue(7).await
        };
        let (held, waited) = tokio::join!(export(7, &done), later);
        held.unwrap();
        assert!(waited.unwrap_err().is_timeout());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_block_of_fns_replaces_too() {
    alone(async {
        let later = async {
            sleep(Duration::from_secs(1)).await;
            Reports.export(7).await
        };
        let (first, second) = tokio::join!(Reports.export(7), later);
        assert!(matches!(first, Err(LockError::Lost { forced: true, .. })), "{first:?}");
        second.unwrap();
    })
    .await;
}
