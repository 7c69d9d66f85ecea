use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::clock::Deadline;
use crate::error::LossReason;
use crate::lock::Round;
use crate::mutants::{Mutant, Seeded};
use crate::protocol::Pushed;
use crate::store::Events as _;
use crate::{LockError, LockGuard, LockManager};
use futures_util::FutureExt as _;

mod late;
mod lingering;
mod managers;
mod permits;
mod readers;
mod strays;
pub(super) mod timers;
mod views;
mod waiters;
mod wakers;
mod watching;
mod woken;

/// One pass of the keeper over an in-memory store.
fn round() -> Round {
    Round { deadline: Deadline::after(Duration::from_secs(1)), usual_answer: Duration::ZERO }
}

#[tokio::test(start_paused = true)]
async fn a_released_lock_is_free_and_forgotten() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    assert!(locks.lock("p", "k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = locks.lock("p", "k").try_acquire().await.unwrap().unwrap();
    drop(guard);
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let locks = LockManager::in_memory();
    let order = Arc::new(Mutex::new(Vec::new()));
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for i in 0..50 {
        let (locks, order) = (locks.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let _guard =
                locks.lock("p", "k").fenced(i % 3 == 0).timeout(Duration::from_mins(1)).acquire().await.unwrap();
            order.lock().unwrap().push(i);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }));
        tokio::task::yield_now().await;
    }
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hold_without_renewal_ends_and_one_with_it_lasts() {
    let locks = LockManager::in_memory();
    let short = locks.lock("p", "k").expire(Duration::from_secs(4)).renew(false).acquire().await.unwrap();
    let long = locks.lock("p", "l").expire(Duration::from_secs(4)).renew(true).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(short.is_valid());
    tokio::time::timeout(Duration::from_secs(2), short.lost()).await.unwrap();
    assert!(matches!(short.release().await, Err(LockError::Lost { .. })));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(long.is_valid());
    long.release().await.unwrap();
}

#[tokio::test]
async fn a_body_that_blocks_past_its_deadline_has_completed_too_late() {
    let locks = LockManager::in_memory();
    // A task waits in the process. The lease must not be handed over as if nothing had happened.
    let body = async {
        tokio::task::yield_now().await;
        // The in-memory store's keeper is on this thread, and has no chance to notice.
        std::thread::sleep(Duration::from_millis(80));
    };
    let late = locks.lock("p", "k").expire(Duration::from_millis(40)).renew(false).run(body);
    let (late, next) = tokio::join!(late, locks.lock("p", "k").acquire());
    assert!(matches!(late, Err(LockError::Lost { completed: true, .. })), "{late:?}");
    assert!(next.unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lost_body_is_dropped() {
    let locks = LockManager::in_memory();
    let outcome = locks
        .lock("p", "k")
        .expire(Duration::from_secs(1))
        .renew(false)
        .run(tokio::time::sleep(Duration::from_secs(9)))
        .await;
    assert!(matches!(outcome, Err(LockError::Lost { completed: false, .. })));
    assert!(locks.lock("p", "k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_almost_over_is_confirmed_before_it_is_handed_over() {
    let locks = LockManager::in_memory();
    let ending = locks.lock("p", "k").expire(Duration::from_secs(3)).renew(false).acquire().await.unwrap();
    let (waited, ()) = tokio::join!(locks.lock("p", "k").timeout(Duration::from_secs(9)).acquire(), async {
        tokio::time::sleep(Duration::from_millis(2800)).await;
        drop(ending);
    });
    assert!(waited.unwrap().remaining() > Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_lease_is_released_once_its_guard_is_dropped() {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    let is_free = async || beside.lock("p", "k").try_acquire().await.unwrap().is_some();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let slot = locks.core().table().get(guard.key()).unwrap();
    locks.core().revoke(&slot, None, LossReason::NotKnown);
    assert!(!guard.is_valid());
    assert!(!is_free().await);
    drop(guard);
    assert!(is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_of_a_lost_bodys_token_is_left_to_the_body() {
    for bug in [None, Some(Mutant::LostIsStray), Some(Mutant::ReleasedBeforeBody)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let beside = LockManager::builder().in_memory_with(&locks).unwrap();
        let is_free = async || beside.lock("p", "k").try_acquire().await.unwrap().is_some();
        let mut body = Box::pin(locks.lock("p", "k").run(std::future::pending::<()>()));
        assert!((&mut body).now_or_never().is_none());
        let slot = locks.core().table().get("p:k").unwrap();
        let token = slot.state.lock().lock.any_lease().token.clone();
        locks.core().revoke(&slot, None, LossReason::ShutDown);
        let pushed = Pushed {
            token,
            claim: Duration::from_secs(2),
            store_micros: 0,
            contended: false,
            node: None,
            unconfirmed: false,
        };
        locks.core().on_grant("p:k", &pushed);
        assert_eq!(is_free().await, bug.is_some(), "the body has not been dropped yet: {bug:?}");
        drop(body);
        assert!(is_free().await);
        assert!(locks.core().table().all().is_empty());
    }
}

/// Of one key: the last granted guard while it is held, and the last fencing token.
type Seen = (Weak<LockGuard>, u64);

/// Random tasks of three processes on two keys, in virtual time. One seed gives one history.
async fn random_tasks(seed: u64) -> Vec<u64> {
    let first = LockManager::in_memory();
    let beside = || LockManager::builder().in_memory_with(&first).unwrap();
    let managers = [first.clone(), beside(), beside()];
    let seen: Arc<Mutex<[Seen; 2]>> = Arc::default();
    let mut history = Vec::new();
    let mut tasks = Vec::new();
    for task in 0..30_u64 {
        let (managers, seen) = (managers.clone(), Arc::clone(&seen));
        let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ task.wrapping_mul(0xD134_2543_DE82_EF95);
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        tasks.push(tokio::spawn(async move {
            let mut grants = 0;
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(random(30))).await;
                let key = usize::try_from(random(2)).unwrap();
                let expire = Duration::from_millis(20 + random(3000));
                let pending = managers[usize::try_from(random(3)).unwrap()]
                    .lock("p", &key)
                    .timeout(Duration::from_millis(random(2000)))
                    .expire(expire)
                    .renew(random(2) == 0)
                    .fenced(true)
                    .acquire();
                let patience = Duration::from_millis(random(3000));
                let Ok(Ok(guard)) = tokio::time::timeout(patience, pending).await else { continue };
                let guard = Arc::new(guard);
                {
                    let (last, fence) = &mut seen.lock().unwrap()[key];
                    let overlaps = last.upgrade().is_some_and(|last| last.is_valid());
                    assert!(!overlaps, "seed {seed}: two holds of {key} at once");
                    let token = u64::from(guard.fencing_token().unwrap());
                    assert!(token > *fence, "seed {seed}: fencing token {token} after {fence}");
                    (*last, *fence) = (Arc::downgrade(&guard), token);
                }
                grants += 1;
                let most = random(400) + 1;
                tokio::time::sleep(Duration::from_millis(random(most))).await;
                if let (true, Some(guard)) = (random(2) == 0, Arc::into_inner(guard)) {
                    let _ = guard.release().await;
                }
            }
            grants
        }));
    }
    for task in tasks {
        history.push(task.await.unwrap());
    }
    for manager in &managers {
        manager.shutdown().await;
        assert!(manager.core().table().all().is_empty(), "seed {seed}: a key is left");
    }
    history
}

#[test]
fn random_tasks_never_overlap_and_leave_nothing() {
    for seed in 0..20 {
        let run = || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(random_tasks(seed))
        };
        let grants: u64 = run().iter().sum();
        assert!(grants > 50, "seed {seed}: {grants} grants");
    }
}
