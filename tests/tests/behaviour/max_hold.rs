//! The longest time for a hold: [`LockRequest::max_hold`](lock_runtime::LockRequest::max_hold).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest};
use tests::over_every_store;
use tests::patience::{NOISE, Stopwatch};
use tests::stores::World;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::{Dropped, LONG, SHORT, is_free};

over_every_store![
    a_body_is_stopped_when_its_longest_hold_is_over,
    a_guard_is_lost_when_its_longest_hold_is_over,
    the_next_one_gets_the_lock_when_the_longest_hold_is_over,
    a_hold_that_ends_in_time_notices_nothing_of_its_limit,
    without_renewal_the_first_of_both_ends_counts,
    a_hold_is_not_extended_beyond_its_limit,
    a_limit_out_of_bounds_is_refused,
    a_body_that_enters_again_has_the_limit_of_the_outer_hold,
    the_limit_of_a_manager_is_for_requests_without_their_own,
];

/// The limit that the error names.
fn limit_in(error: &LockError) -> Option<Duration> {
    match error {
        LockError::Lost { max_hold, .. } => *max_hold,
        _ => panic!("{error:?}"),
    }
}

/// Runs a body until it is stopped, and returns when it was dropped.
async fn stopped_after(request: LockRequest) -> (Duration, LockError) {
    let dropped = Arc::new(AtomicBool::new(false));
    let witness = Dropped(Arc::clone(&dropped));
    let start = Stopwatch::start();
    let body = async move {
        let _witness = witness;
        sleep(LONG).await;
    };
    let error = request.run(body).await.unwrap_err();
    assert!(dropped.load(Ordering::SeqCst));
    (start.counted(), error)
}

async fn a_body_is_stopped_when_its_longest_hold_is_over(world: World) {
    let manager = world.manager().await;
    // Leases that are shorter than the limit, about as long, and far longer.
    for (expire, limit) in [(SHORT, SHORT * 3), (SHORT, SHORT), (LONG, SHORT * 2)] {
        // With `at_least`, the lease may be as long as the limit from the start.
        for at_least in [Duration::ZERO, limit] {
            let request = manager.lock("p", "k").expire(expire).max_hold(limit).at_least(at_least);
            let (after, error) = stopped_after(request.timeout(LONG)).await;
            assert!(after >= limit && after < limit + NOISE, "{expire:?} {at_least:?} {after:?}");
            assert_eq!(limit_in(&error), Some(limit));
        }
    }
}

async fn a_guard_is_lost_when_its_longest_hold_is_over(world: World) {
    let manager = world.manager().await;
    let start = Stopwatch::start();
    let guard = manager.lock("p", "k").max_hold(SHORT).acquire().await.unwrap();
    assert!(guard.remaining() <= SHORT);
    guard.lost().await;
    assert!(start.counted() >= SHORT && start.elapsed() < SHORT + NOISE, "{:?}", start.elapsed());
    assert!(!guard.is_valid());
    let error = guard.release().await.unwrap_err();
    assert_eq!(limit_in(&error), Some(SHORT));
}

async fn the_next_one_gets_the_lock_when_the_longest_hold_is_over(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let (begin, begun) = oneshot::channel();
    let stuck = manager.lock("p", "k").max_hold(SHORT).run(async {
        begin.send(()).unwrap();
        sleep(LONG).await;
    });
    let next = async {
        begun.await.unwrap();
        let start = Instant::now();
        drop(other.lock("p", "k").timeout(LONG).acquire().await.unwrap());
        start.elapsed()
    };
    let (stuck, waited) = tokio::join!(stuck, next);
    assert!(stuck.unwrap_err().is_lost());
    assert!(waited < SHORT + NOISE + world.pause(), "{waited:?}");
}

async fn a_hold_that_ends_in_time_notices_nothing_of_its_limit(world: World) {
    let manager = world.manager().await;
    manager.lock("p", "k").max_hold(LONG).run(sleep(SHORT / 3)).await.unwrap();
    assert!(is_free(&manager, "k").await);
    let guard = manager.lock("p", "k").max_hold(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn without_renewal_the_first_of_both_ends_counts(world: World) {
    let manager = world.manager().await;
    let request = || manager.lock("p", "k").renew(false);
    let (after, error) = stopped_after(request().expire(SHORT).max_hold(LONG)).await;
    assert!(after < SHORT + NOISE, "{after:?}");
    assert_eq!(limit_in(&error), None);
    let (after, error) = stopped_after(request().expire(LONG).max_hold(SHORT)).await;
    assert!(after >= SHORT && after < SHORT + NOISE, "{after:?}");
    assert_eq!(limit_in(&error), Some(SHORT));
}

async fn a_hold_is_not_extended_beyond_its_limit(world: World) {
    let manager = world.manager().await;
    let request = manager.lock("p", "k").expire(SHORT).renew(false).max_hold(SHORT * 3);
    let (start, guard) = (Instant::now(), request.acquire().await.unwrap());
    let error = guard.extend(SHORT * 4).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    assert!(error.to_string().contains("`max_hold`"), "{error}");
    assert!(guard.is_valid());
    guard.extend(SHORT * 2).await.unwrap();
    guard.lost().await;
    assert!(start.elapsed() + SHORT / 4 > SHORT * 2, "{:?}", start.elapsed());
}

async fn a_limit_out_of_bounds_is_refused(world: World) {
    let manager = world.manager().await;
    for limit in [Duration::ZERO, Duration::from_millis(9), Duration::from_hours(366 * 24)] {
        let error = manager.lock("p", "k").max_hold(limit).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { setting: "max_hold", .. }), "{error:?}");
    }
}

async fn a_body_that_enters_again_has_the_limit_of_the_outer_hold(world: World) {
    let manager = world.manager().await;
    let inner = manager.lock("p", "k").max_hold(LONG).run(sleep(LONG));
    let error = manager.lock("p", "k").max_hold(SHORT).run(inner).await.unwrap_err();
    assert_eq!(limit_in(&error), Some(SHORT));
}

async fn the_limit_of_a_manager_is_for_requests_without_their_own(world: World) {
    let manager = world.manager_with(LockManager::builder().default_max_hold(SHORT)).await;
    let (after, error) = stopped_after(manager.lock("p", "k")).await;
    assert_eq!(limit_in(&error), Some(SHORT));
    assert!(after >= SHORT && after < LONG / 2, "{after:?}");
    let own = manager.lock("p", "k").max_hold(LONG).run(sleep(SHORT * 2)).await;
    own.unwrap();
    if !world.is_quorum() {
        // The default must not make a lingering reader fail.
        manager.lock("p", "r").read().linger(SHORT).run(async {}).await.unwrap();
    }
}
