//! After a body was dropped before its end, its lock rests for [`lock_delay`](lock_runtime::LockRequest::lock_delay).

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest, OnBusy};
use tests::over_every_store;
use tests::patience::NOISE;
use tests::stores::World;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::{LONG, SHORT, is_free, wait_until_free};

over_every_store![
    a_lock_rests_when_the_caller_of_its_body_goes_away,
    a_lock_rests_when_its_body_was_stopped,
    a_request_that_replaces_the_holder_gets_the_lock_after_the_rest,
    each_lock_of_a_dropped_body_rests,
    a_permit_rests,
    a_body_that_ends_and_a_guard_leave_no_rest,
    a_manager_has_a_delay_for_all,
    what_has_no_meaning_is_refused,
];

/// Longer than the lease of the holds.
const DELAY: Duration = Duration::from_millis(900);

fn request(manager: &LockManager) -> LockRequest {
    manager.lock("p", "k").timeout(LONG).expire(SHORT).lock_delay(DELAY)
}

/// A body that notifies when it begins, and never ends.
async fn never_ends(begun: &Notify) {
    begun.notify_one();
    std::future::pending::<()>().await;
}

/// Starts a body, then drops its caller.
async fn go_away(request: LockRequest) {
    let body = request.run(std::future::pending::<()>());
    assert!(timeout(SHORT, body).await.is_err());
}

/// The lock becomes free when its rest is over, not sooner and not much later. On a quorum, waiters poll.
async fn rests(world: &World, managers: [&LockManager; 2], since: Instant) {
    for manager in managers {
        assert!(!is_free(manager, "k").await);
    }
    let seen = managers[0].inspect("p", "k").await.unwrap().expect("it rests");
    assert!(seen.rests && seen.remaining <= DELAY + NOISE, "{seen:?}");
    wait_until_free(managers[0], "k").await;
    let rested = since.elapsed();
    let late = if world.is_quorum() { NOISE * 2 } else { NOISE };
    assert!(rested >= DELAY && rested < DELAY + late, "{rested:?}");
}

async fn a_lock_rests_when_the_caller_of_its_body_goes_away(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    go_away(request(&manager)).await;
    rests(&world, [&other, &manager], Instant::now()).await;
    // The rest outlasts the manager.
    go_away(request(&manager)).await;
    let gone = Instant::now();
    manager.shutdown().await;
    rests(&world, [&other, &other], gone).await;
}

async fn a_lock_rests_when_its_body_was_stopped(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let stopped = request(&manager).max_hold(SHORT * 2).run(std::future::pending::<()>()).await;
    let gone = Instant::now();
    assert!(matches!(stopped, Err(LockError::Lost { max_hold: Some(_), .. })), "{stopped:?}");
    rests(&world, [&other, &manager], gone).await;
    if world.is_quorum() {
        return;
    }
    let begun = Notify::new();
    let force = async {
        begun.notified().await;
        assert!(other.force_release("p", "k").await.unwrap());
    };
    let (forced, ()) = tokio::join!(request(&manager).run(never_ends(&begun)), force);
    assert!(matches!(forced, Err(LockError::Lost { forced: true, .. })), "{forced:?}");
    assert!(!is_free(&other, "k").await && !is_free(&manager, "k").await);
    assert!(other.force_release("p", "k").await.unwrap(), "a second force ends the rest");
    assert!(is_free(&other, "k").await);
}

async fn a_request_that_replaces_the_holder_gets_the_lock_after_the_rest(world: World) {
    if world.is_quorum() {
        return;
    }
    let (manager, other) = (world.manager().await, world.manager().await);
    for newer in [&other, &manager] {
        let begun = Notify::new();
        let older = async {
            let replaced = request(&manager).run(never_ends(&begun)).await;
            assert!(matches!(replaced, Err(LockError::Lost { forced: true, .. })), "{replaced:?}");
            Instant::now()
        };
        let replacing = async {
            begun.notified().await;
            request(newer).on_busy(OnBusy::Replace).run(async { Instant::now() }).await.unwrap()
        };
        let (dropped, begun) = tokio::join!(older, replacing);
        let rested = begun - dropped;
        assert!(rested + Duration::from_millis(50) >= DELAY && rested < DELAY + NOISE, "{rested:?}");
    }
}

async fn each_lock_of_a_dropped_body_rests(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    go_away(manager.lock_all("p", ["a", "b"]).timeout(LONG).expire(SHORT).lock_delay(DELAY)).await;
    assert!(!is_free(&other, "a").await && !is_free(&other, "b").await);
    wait_until_free(&other, "a").await;
    wait_until_free(&other, "b").await;
    // A request that fails has no body to drop.
    let held = other.lock("p", "b").timeout(LONG).acquire().await.unwrap();
    let both = manager.lock_all("p", ["a", "b"]).timeout(SHORT).lock_delay(DELAY).run(async {}).await;
    assert!(both.unwrap_err().is_timeout());
    assert!(is_free(&other, "a").await);
    held.release().await.unwrap();
}

async fn a_permit_rests(world: World) {
    if world.is_quorum() {
        return;
    }
    let (manager, other) = (world.manager().await, world.manager().await);
    go_away(request(&manager).permits(2)).await;
    let _one = other.lock("p", "k").permits(2).acquire().await.unwrap();
    assert!(other.lock("p", "k").permits(2).try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    let _other = other.lock("p", "k").permits(2).timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < DELAY + NOISE, "{:?}", start.elapsed());
}

async fn a_body_that_ends_and_a_guard_leave_no_rest(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    request(&manager).run(async {}).await.unwrap();
    assert!(is_free(&other, "k").await);
    request(&manager).acquire().await.unwrap().release().await.unwrap();
    assert!(is_free(&other, "k").await);
    let start = Instant::now();
    drop(request(&manager).acquire().await.unwrap());
    wait_until_free(&other, "k").await;
    assert!(start.elapsed() < DELAY, "{:?}", start.elapsed());
}

async fn a_manager_has_a_delay_for_all(world: World) {
    let manager = world.manager_with(LockManager::builder().default_lock_delay(DELAY)).await;
    let other = world.manager().await;
    go_away(manager.lock("p", "k").timeout(LONG)).await;
    rests(&world, [&other, &manager], Instant::now()).await;
    go_away(manager.lock("p", "k").timeout(LONG).lock_delay(Duration::ZERO)).await;
    let start = Instant::now();
    wait_until_free(&other, "k").await;
    assert!(start.elapsed() < DELAY, "{:?}", start.elapsed());
}

async fn what_has_no_meaning_is_refused(world: World) {
    let manager = world.manager().await;
    let year = Duration::from_hours(366 * 24);
    let mut refused = vec![manager.lock("p", "k").lock_delay(year).run(async {}).await.unwrap_err()];
    if !world.is_quorum() {
        refused.push(request(&manager).read().run(async {}).await.unwrap_err());
    }
    for refused in refused {
        assert!(matches!(refused, LockError::InvalidSetting { setting: "lock_delay", .. }), "{refused:?}");
    }
    let builder = LockManager::builder().default_lock_delay(year);
    let refused = match world.try_manager_with(builder).await {
        Ok(manager) => manager.lock("p", "k").acquire().await.unwrap_err(),
        Err(refused) => refused,
    };
    assert!(matches!(refused, LockError::InvalidSetting { setting: "default_lock_delay", .. }), "{refused:?}");
}
