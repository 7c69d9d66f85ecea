use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Deadline;
use crate::local::upkeep::ScheduleKeys;
use crate::{LockGuard, LockManager};

const EXPIRE: Duration = Duration::from_secs(1);

async fn read(locks: &LockManager) -> LockGuard {
    locks.lock("p", "k").read().expire(EXPIRE).acquire().await.unwrap()
}

/// The keeper finds that nobody uses the hold, and a reader comes before the keeper ends it.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_used_again_is_not_ended_and_is_still_renewed() {
    let locks = LockManager::in_memory();
    let reader = read(&locks).await;
    sleep(EXPIRE / 10).await;
    let slot = locks.core().table().sharing("p:k").pop().unwrap();
    let due = slot.state.lock().lease.as_mut().and_then(|lease| lease.upkeep.entries.due.take());
    assert!(due.is_some(), "the keeper looks at the slot because of a timer, which is gone then");
    locks.core().schedule().cancel(ScheduleKeys { due, tracked: None });
    locks.core().end_unused(&slot);
    sleep(EXPIRE * 3).await;
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    drop(slot);
    assert!(locks.core().table().all().is_empty());
}

/// Their deadline passes, and a reader ends before the keeper has seen it.
#[tokio::test(start_paused = true)]
async fn each_reader_of_a_lost_hold_counts_as_lost() {
    let locks = LockManager::in_memory();
    let readers = [read(&locks).await, read(&locks).await, read(&locks).await];
    for slot in locks.core().table().sharing("p:k") {
        slot.state.lock().lease.as_mut().unwrap().until = Deadline::after(Duration::ZERO);
    }
    drop(readers);
    assert_eq!((locks.stats().lost, locks.stats().held), (3, 0));
}
