//! Tests: a body whose hold is lost.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::error::LossReason;
use crate::mutants::{Mutant, Seeded};
use crate::options::LockOptions;
use crate::{LockError, LockManager};

/// Whether a waiting body is stopped at once if its hold was lost just before its first step.
async fn is_stopped(bug: Option<Mutant>) -> bool {
    let _seeded = Seeded::begin(bug);
    let engine = LockManager::in_memory().engine;
    let held = LockOptions::new("p", "k").enter(Some(engine.clone())).await.unwrap();
    let slot = engine.core().table().get("p:k").unwrap();
    engine.core().revoke(&slot, None, LossReason::NotKnown);
    let begin = Instant::now();
    // When the time is over, the body is polled once more, and then stopped in any case.
    let stopped = timeout(Duration::from_secs(9), held.protect(pending::<()>())).await;
    assert!(matches!(stopped, Ok(Err(LockError::Lost { completed: false, .. }))), "{stopped:?}");
    begin.elapsed() < Duration::from_secs(1)
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_hold_was_lost_before_its_first_step_is_stopped_when_it_waits() {
    assert!(is_stopped(None).await);
    assert!(!is_stopped(Some(Mutant::LostBeforeUnseen)).await, "the bug shows");
}
