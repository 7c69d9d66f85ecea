use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use crate::clock::Deadline;
use crate::error::LossReason;
use crate::mutants::{Mutant, Seeded};
use crate::{LockGuard, LockManager, LockRequest};

const EXPIRE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);

async fn read(locks: &LockManager) -> LockGuard {
    locks.lock("p", "k").read().expire(EXPIRE).acquire().await.unwrap()
}

/// Their deadline passes, and a reader ends before the keeper notices.
#[tokio::test(start_paused = true)]
async fn each_reader_of_a_lost_hold_counts_as_lost() {
    let locks = LockManager::in_memory();
    let readers = [read(&locks).await, read(&locks).await, read(&locks).await];
    for slot in locks.core().table().of_key("p:k") {
        slot.state.lock().lock.any_lease().until = Deadline::after(Duration::ZERO);
    }
    drop(readers);
    assert_eq!((locks.stats().lost, locks.stats().held), (3, 0));
}

/// Tasks hold the lock in turns, so that it is never free. Returns how long a task that wants its only permit waits.
async fn wait_among(crowd: fn(LockRequest) -> LockRequest) -> Option<Duration> {
    let locks = LockManager::in_memory();
    let request = |locks: &LockManager| locks.lock("p", "k").timeout(LONG);
    let mut tasks = JoinSet::new();
    for millis in [5, 7, 11, 13, 17, 19] {
        let locks = locks.clone();
        tasks.spawn(async move {
            loop {
                crowd(request(&locks)).run(sleep(Duration::from_millis(millis))).await.unwrap();
                yield_now().await;
            }
        });
    }
    sleep(LONG / 100).await;
    let start = Instant::now();
    request(&locks).permits(1).timeout(LONG / 2).acquire().await.is_ok().then(|| start.elapsed())
}

/// The store notifies other processes of a waiter for a permit. The process must notify its own other queues itself.
#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_permit_is_served_beside_other_queues_of_its_process() {
    for bug in [None, Some(Mutant::QueueBesideUntold)] {
        let _seeded = Seeded::begin(bug);
        for crowd in [(|lock| lock.permits(3)) as fn(LockRequest) -> LockRequest, LockRequest::read] {
            let waited = wait_among(crowd).await;
            assert_eq!(waited.is_some_and(|waited| waited < LONG / 100), bug.is_none(), "{waited:?}");
        }
    }
}

/// A guard ends when its owner drops it. After a loss, as at a shutdown, nothing waits for guards.
#[tokio::test(start_paused = true)]
async fn a_lost_lock_waits_for_the_bodies_of_its_readers_and_for_no_guard() {
    let connected = || {
        let locks = LockManager::in_memory();
        let beside = LockManager::builder().in_memory_with(&locks).unwrap();
        (locks, beside)
    };
    let is_free = async |beside: &LockManager| beside.lock("p", "k").try_acquire().await.unwrap().is_some();
    let lose = |locks: &LockManager| {
        let slot = locks.core().table().of_key("p:k").pop().unwrap();
        locks.core().revoke(&slot, None, LossReason::ShutDown);
    };
    for (bug, is_free_beside_guards) in [(None, true), (Some(Mutant::GuardsCountAsBodies), false)] {
        let _seeded = Seeded::begin(bug);
        let (locks, beside) = connected();
        let guards = (read(&locks).await, read(&locks).await);
        lose(&locks);
        assert_eq!(is_free(&beside).await, is_free_beside_guards, "{bug:?}");
        drop(guards);
    }
    let (locks, beside) = connected();
    let guard = read(&locks).await;
    let mut body = Box::pin(locks.lock("p", "k").read().expire(EXPIRE).run(std::future::pending::<()>()));
    assert!((&mut body).now_or_never().is_none());
    lose(&locks);
    assert!(!is_free(&beside).await, "the body has not been dropped yet");
    drop(body);
    assert!(is_free(&beside).await, "nobody waits for the guard");
    drop(guard);
    let guard = read(&locks).await;
    locks.lock("p", "k").read().expire(EXPIRE).run(async {}).await.unwrap();
    lose(&locks);
    assert!(is_free(&beside).await, "the body has already ended");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn readers_that_are_gone_leave_nothing_in_the_hold_of_one_that_stays() {
    let locks = LockManager::in_memory();
    let stays = read(&locks).await;
    for _ in 0..9 {
        locks.lock("p", "k").read().fenced(true).run(async {}).await.unwrap();
        locks.lock("p", "k").read().max_hold(LONG).run(async {}).await.unwrap();
    }
    let slot = locks.core().table().of_key("p:k").pop().unwrap();
    assert_eq!(format!("{slot:?}").matches("Limited").count(), 0);
    drop(stays);
}
