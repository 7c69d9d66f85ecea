//! Tests: one queue for all permits of a name.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::mutants::{Mutant, Seeded};
use crate::mutex::Mutex;
use crate::timing::FREE_PATIENCE;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const SECOND: Duration = Duration::from_secs(1);
/// A free permit is acquired within this time.
const SOON: Duration = Duration::from_millis(20);

fn permit(locks: &LockManager) -> LockRequest {
    locks.lock("p", "k").permits(2).timeout(SECOND * 60)
}

fn waiting(locks: &LockManager) -> tokio::task::JoinHandle<LockGuard> {
    let acquiring = permit(locks).acquire();
    tokio::spawn(async { acquiring.await.unwrap() })
}

/// Whether the second of two waiters gets the freed permit when the guard of a lost permit has ended before.
async fn second_waiter_is_order_of_holds(is_released: bool) -> bool {
    let locks = LockManager::in_memory();
    let lost = permit(&locks).renew(false).expire(SECOND).acquire().await.unwrap();
    let held = permit(&locks).acquire().await.unwrap();
    let (first, second) = (waiting(&locks), waiting(&locks));
    timeout(SECOND + SOON, lost.lost()).await.unwrap();
    let _first = timeout(SOON, first).await.expect("it gets the lost permit");
    if is_released {
        assert!(lost.release().await.is_err());
    } else {
        drop(lost);
    }
    sleep(SOON).await;
    drop(held);
    timeout(SOON, second).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_guard_whose_permit_was_lost_ties_no_waiter_to_that_permit() {
    for is_released in [true, false] {
        assert!(second_waiter_is_order_of_holds(is_released).await, "released: {is_released}");
    }
}

/// Whether the only waiter for one of two permits starts while one of two and two of four are held.
async fn starts_while_two_are_held(is_released: bool, bug: Option<Mutant>) -> bool {
    let _seeded = Seeded::begin(bug);
    let locks = LockManager::in_memory();
    let (ended, held) = (permit(&locks).acquire().await.unwrap(), permit(&locks).acquire().await.unwrap());
    let of_four = || locks.lock("p", "k").permits(4).timeout(SECOND).acquire();
    let beside = [of_four().await.unwrap(), of_four().await.unwrap()];
    let mut waiting = waiting(&locks);
    sleep(SOON).await;
    if is_released {
        ended.release().await.unwrap();
    } else {
        drop(ended);
    }
    for guard in beside {
        if timeout(SOON, &mut waiting).await.is_ok() {
            return true;
        }
        guard.release().await.unwrap();
    }
    // Now one fewer is held than the limit allows.
    let granted = timeout(SOON, waiting).await.expect("there is room").unwrap();
    drop((held, granted));
    assert!(locks.core().table().all().is_empty());
    false
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_not_handed_over_beyond_the_limit_of_permits() {
    for is_released in [true, false] {
        assert!(!starts_while_two_are_held(is_released, None).await, "released: {is_released}");
        assert!(
            starts_while_two_are_held(is_released, Some(Mutant::HandOverUncounted)).await,
            "released: {is_released}"
        );
    }
}

/// Whether a task that was woken for a permit but not polled gets the next free one, while another task holds the first one for a long
/// time.
async fn late_task_is_order_of_holds() -> bool {
    let locks = LockManager::in_memory();
    let (first, second) = (permit(&locks).acquire().await.unwrap(), permit(&locks).acquire().await.unwrap());
    let mut late = std::pin::pin!(permit(&locks).acquire());
    assert!(late.as_mut().now_or_never().is_none());
    let next = waiting(&locks);
    sleep(SOON).await;
    drop(first);
    let _held = timeout(SECOND, next).await.expect("the late task is passed over");
    assert!(late.as_mut().now_or_never().is_none(), "both permits are held");
    let behind = waiting(&locks);
    sleep(SOON).await;
    drop(second);
    let is_served = timeout(SOON, late).await.is_ok();
    behind.abort();
    is_served
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_late_for_one_permit_gets_another_that_is_released() {
    assert!(late_task_is_order_of_holds().await);
}

/// At most one body may run with `permits = 1`, and several run with `permits = 4`.
#[tokio::test(start_paused = true)]
async fn a_permit_inside_a_body_with_more_permits_is_refused() {
    for (bug, is_refused) in [(None, true), (Some(Mutant::PermitsCoverFewer), false)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let nested = async |outer, inner| {
            let inner = locks.lock("p", "k").permits(inner).run(async {});
            locks.lock("p", "k").permits(outer).run(inner).await.unwrap()
        };
        let told = nested(4, 1).await;
        let is_told = matches!(told, Err(LockError::AlreadyHeld { wants_more: true, .. }));
        assert_eq!(is_told, is_refused, "{bug:?}: {told:?}");
        assert!(nested(4, 4).await.is_ok() && nested(1, 4).await.is_ok());
    }
}

/// The order in which tasks get the one of two permits that another process does not hold. The first task asks for it while a task here
/// holds it; the others arrive later.
async fn order_of_holds(later: u32) -> Vec<u32> {
    let locks = LockManager::in_memory();
    let elsewhere = LockManager::builder().label("elsewhere").in_memory_with(&locks).unwrap();
    let _elsewhere = permit(&elsewhere).acquire().await.unwrap();
    let here = permit(&locks).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..=later {
        let (acquiring, order) = (permit(&locks).acquire(), Arc::clone(&order));
        tasks.spawn(async move {
            let _guard = acquiring.await.unwrap();
            order.lock().push(number);
            sleep(Duration::from_millis(1 + u64::from(number % 3) * 7)).await;
        });
        sleep(SOON).await;
    }
    drop(here);
    while tasks.join_next().await.is_some() {}
    drop(locks);
    let order = order.lock();
    order.clone()
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asked_for_a_permit_is_served_before_later_tasks() {
    let in_order: Vec<u32> = (0..=12).collect();
    assert_eq!(order_of_holds(12).await, in_order);
}

/// A task gets a freed permit even if the task in front of it, which asked for another one, is not polled.
#[tokio::test(start_paused = true)]
async fn a_task_that_asked_for_a_permit_and_is_not_polled_keeps_nobody_out() {
    let locks = LockManager::in_memory();
    let elsewhere = LockManager::builder().label("elsewhere").in_memory_with(&locks).unwrap();
    let other = permit(&elsewhere).acquire().await.unwrap();
    for is_dropped in [true, false] {
        let here = permit(&locks).acquire().await.unwrap();
        let mut first = permit(&locks).acquire();
        assert!((&mut first).now_or_never().is_none(), "it asks, and is not polled again");
        sleep(SOON).await;
        let second = waiting(&locks);
        sleep(SOON).await;
        if is_dropped {
            drop(first);
            drop(here);
            drop(timeout(SOON, second).await.expect("at once"));
        } else {
            drop(here);
            // The first task was woken, and gets some time to be polled.
            let second = timeout(FREE_PATIENCE + SOON, second).await.expect("soon").unwrap();
            assert!(timeout(SECOND / 10, &mut first).await.is_err(), "both permits are in use");
            drop(second);
            drop(timeout(SOON, first).await.expect("it keeps its place"));
        }
        sleep(SECOND).await;
    }
    drop(other);
    sleep(SOON).await;
    assert!(locks.core().table().all().is_empty());
}
