//! How long a hold lasts: expiry, renewal, extension, and the drop of the guard.

use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{LONG, SHORT, is_free};

over_every_store![
    a_hold_ends_with_its_expire,
    a_renewed_hold_outlives_its_lease,
    an_expire_is_no_limit_for_a_healthy_holder,
    a_dropped_guard_frees_the_lock,
    extending_moves_the_deadline,
    extending_never_shortens,
    a_lost_hold_is_not_extended,
    a_lease_out_of_bounds_is_not_extended_to,
    a_lease_that_was_left_behind_is_not_taken_over_for_its_last_moments,
    a_lease_asked_for_by_another_is_not_too_short,
];

async fn a_hold_ends_with_its_expire(world: World) {
    let manager = world.manager().await;
    let start = Instant::now();
    let guard = manager.lock("p", "k").expire(SHORT).renew(false).acquire().await.unwrap();
    assert!(guard.is_valid());
    assert!(guard.remaining() > Duration::ZERO && guard.remaining() <= SHORT);
    guard.lost().await;
    let held = start.elapsed();
    assert!(held > SHORT / 2 && held < SHORT + NOISE, "{held:?}");
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    let error = guard.release().await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert!(error.to_string().contains("`p:k`"));
}

async fn a_renewed_hold_outlives_its_lease(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(SHORT).renew(true).acquire().await.unwrap();
    for _ in 0..12 {
        sleep(SHORT / 3).await;
        assert!(guard.is_valid());
        assert!(!is_free(&manager, "k").await);
    }
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn an_expire_is_no_limit_for_a_healthy_holder(world: World) {
    // Long enough that two of three renewals may be late on a busy machine.
    let lease = SHORT * 3;
    let manager = world.manager_with(LockManager::builder().default_expire(lease)).await;
    let by_default = manager.lock("p", "default").acquire().await.unwrap();
    let by_request = manager.lock("p", "request").expire(lease).acquire().await.unwrap();
    let body = manager.lock("p", "body").expire(lease).run(sleep(lease * 2));
    assert!(body.await.is_ok());
    for guard in [by_default, by_request] {
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
}

async fn a_dropped_guard_frees_the_lock(world: World) {
    let manager = world.manager().await;
    drop(manager.lock("p", "k").acquire().await.unwrap());
    assert!(is_free(&manager, "k").await);
    if let Some(server) = world.server_of("p:k") {
        eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    }
}

async fn extending_moves_the_deadline(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(SHORT).renew(false).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    assert!(guard.remaining() > LONG / 2 && guard.remaining() <= LONG, "{:?}", guard.remaining());
    sleep(SHORT * 2).await;
    assert!(guard.is_valid());
    assert!(!is_free(&manager, "k").await);
    guard.release().await.unwrap();
}

async fn extending_never_shortens(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(LONG).renew(false).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    guard.extend(Duration::from_millis(50)).await.unwrap();
    assert!(guard.remaining() > LONG / 2, "{:?}", guard.remaining());
    guard.release().await.unwrap();
}

async fn a_lost_hold_is_not_extended(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(Duration::from_millis(50)).renew(false).acquire().await.unwrap();
    guard.lost().await;
    assert!(guard.extend(LONG).await.unwrap_err().is_lost());
    assert!(!guard.is_valid());
}

async fn a_lease_out_of_bounds_is_not_extended_to(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    for lease in [Duration::ZERO, Duration::from_millis(5), Duration::from_hours(400 * 24), Duration::MAX] {
        let error = guard.extend(lease).await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{lease:?}: {error:?}");
    }
    assert!(guard.is_valid());
}

async fn a_lease_that_was_left_behind_is_not_taken_over_for_its_last_moments(world: World) {
    let manager = world.manager().await;
    let request = || manager.lock("p", "k").expire(SHORT * 3).renew(false).timeout(LONG);
    for _ in 0..5 {
        let guard = request().acquire().await.unwrap();
        sleep(SHORT * 5 / 2).await;
        drop(guard);
        // At once, before the unused lease is released.
        let guard = request().acquire().await.unwrap();
        assert!(guard.remaining() > SHORT, "{:?}", guard.remaining());
        guard.release().await.unwrap();
    }
}

async fn a_lease_asked_for_by_another_is_not_too_short(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    for _ in 0..5 {
        let guard = north.lock("p", "k").acquire().await.unwrap();
        let impatient = south.lock("p", "k").expire(Duration::from_millis(10)).renew(false).timeout(SHORT).acquire();
        let patient = async {
            sleep(Duration::from_millis(2)).await;
            let guard = south.lock("p", "k").timeout(LONG).acquire().await.unwrap();
            assert!(guard.remaining() > SHORT, "{:?}", guard.remaining());
            guard.release().await
        };
        let release = async {
            sleep(SHORT * 2).await;
            guard.release().await
        };
        let (impatient, patient, released) = tokio::join!(impatient, patient, release);
        assert!(impatient.unwrap_err().is_timeout());
        patient.unwrap();
        released.unwrap();
    }
}
