//! Locks seen and released from outside: [`LockManager::inspect`] and [`LockManager::force_release`].

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::poll;
use lock_runtime::{LockError, LockManager, LockMode};
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::stores::World;
use tokio::time::{Instant, sleep, timeout};

use crate::{Dropped, LONG, is_free};

over_every_store![
    a_look_names_the_holder_its_time_and_the_waiters,
    a_free_lock_shows_nothing,
    a_body_is_stopped_before_the_next_one_gets_the_lock,
    a_guard_reports_that_its_lock_was_released_by_force,
    a_free_lock_is_not_released_by_force,
    a_holder_that_does_not_stop_keeps_the_lock_for_a_claim,
    the_next_task_of_the_process_waits_behind_another_process,
    a_busy_lock_tells_when_its_lease_ends,
    a_body_that_releases_its_own_lock_by_force_is_stopped_there,
    one_of_several_permits_is_released_by_force,
];

/// The short first lease of a grant.
const CLAIM: Duration = Duration::from_millis(2500);

/// After this time a hold has its full lease.
const CONFIRMED: Duration = Duration::from_millis(100);

/// Whether the store can release locks by force. If not, checks that it refuses and that nothing happens.
async fn can_force(world: &World, manager: &LockManager) -> bool {
    if world.is_quorum() {
        let before = world.keys();
        let refused = manager.force_release("p", "k").await.unwrap_err();
        assert!(matches!(refused, LockError::InvalidSetting { setting: "force_release", .. }), "{refused}");
        assert_eq!(before.map(|keys| keys.len()), world.keys().map(|keys| keys.len()));
    }
    !world.is_quorum()
}

async fn a_look_names_the_holder_its_time_and_the_waiters(world: World) {
    let north = world.manager_with(LockManager::builder().label("north 1")).await;
    let south = world.manager_with(LockManager::builder().label("south|2")).await;
    let guard = north.lock("p", "k").expire(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    let mut waiting = pin!(south.lock("p", "k").timeout(LONG).acquire());
    let looking = async {
        loop {
            let seen = south.inspect("p", "k").await.unwrap().unwrap();
            // A quorum has no queue, so waiters, which poll it, are invisible.
            if !seen.waiting.is_empty() || world.is_quorum() {
                return seen;
            }
            sleep(Duration::from_millis(3)).await;
        }
    };
    let seen = tokio::select! {
        seen = timeout(LONG / 2, looking) => seen.expect("the waiter is seen"),
        guard = &mut waiting => unreachable!("{guard:?}"),
    };
    assert_eq!((seen.key.as_str(), seen.holder.as_deref()), ("p:k", Some("north 1")));
    assert!(seen.remaining > LONG / 2 && seen.remaining <= LONG, "{seen:?}");
    let waiting = if world.is_quorum() { Vec::new() } else { vec!["south|2".to_owned()] };
    assert_eq!(
        (seen.waiting, seen.mode, seen.is_held_here, seen.is_forced),
        (waiting, LockMode::Exclusive, false, false)
    );
    assert!(north.inspect("p", "k").await.unwrap().unwrap().is_held_here);
    assert!(south.is_locked("p", "k").await.unwrap());
}

async fn a_free_lock_shows_nothing(world: World) {
    let manager = world.manager().await;
    assert!(manager.inspect("p", "k").await.unwrap().is_none());
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    assert!(!manager.is_locked("p", "k").await.unwrap());
    let refused = manager.is_locked("p", "").await.unwrap_err();
    assert!(matches!(refused, LockError::InvalidKey { .. }), "{refused:?}");
}

async fn a_body_is_stopped_before_the_next_one_gets_the_lock(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    if !can_force(&world, &south).await {
        return;
    }
    for _ in 0..5 {
        let gone = Arc::new(AtomicBool::new(false));
        let (body, running) = (Dropped(Arc::clone(&gone)), Arc::new(AtomicBool::new(false)));
        let (locks, runs) = (north.clone(), Arc::clone(&running));
        let stopped = tokio::spawn(async move {
            let body = async move {
                let _body = body;
                runs.store(true, Ordering::SeqCst);
                std::future::pending::<()>().await;
            };
            locks.lock("p", "k").run(body).await.unwrap_err()
        });
        while !running.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
        // Wait until the hold is confirmed. Otherwise a refused renewal could report the loss first, without the reason.
        sleep(CONFIRMED).await;
        let next = async {
            let guard = south.lock("p", "k").timeout(LONG).acquire().await.unwrap();
            assert!(gone.load(Ordering::SeqCst), "the body of the holder still exists");
            guard
        };
        let start = Instant::now();
        let (guard, forced) = tokio::join!(next, south.force_release("p", "k"));
        assert!(forced.unwrap());
        assert!(start.elapsed() < CLAIM / 2, "the holder did not stop at once: {:?}", start.elapsed());
        let error = stopped.await.unwrap();
        assert!(matches!(error, LockError::Lost { completed: false, forced: true, .. }), "{error:?}");
        assert!(error.to_string().contains("released by force"), "{error}");
        guard.release().await.unwrap();
    }
}

async fn a_guard_reports_that_its_lock_was_released_by_force(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    if !can_force(&world, &south).await {
        return;
    }
    let guard = north.lock("p", "k").acquire().await.unwrap();
    sleep(CONFIRMED).await;
    assert!(south.force_release("p", "k").await.unwrap());
    guard.lost().await;
    assert!(is_free(&south, "k").await);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: true, forced: true, .. }), "{error:?}");
    // The next hold of the same key works as usual.
    let guard = north.lock("p", "k").expire(Duration::from_millis(60)).renew(false).acquire().await.unwrap();
    guard.lost().await;
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { forced: false, .. }), "{error:?}");
}

async fn a_free_lock_is_not_released_by_force(world: World) {
    let manager = world.manager().await;
    if can_force(&world, &manager).await {
        assert!(!manager.force_release("p", "k").await.unwrap());
        assert!(is_free(&manager, "k").await);
    }
}

async fn a_holder_that_does_not_stop_keeps_the_lock_for_a_claim(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    if !can_force(&world, &south).await {
        return;
    }
    // A body whose task is not polled, as when its executor is busy.
    let mut late = Box::pin(north.lock("p", "k").expire(LONG).run(std::future::pending::<()>()));
    let holding = async {
        while !poll!(&mut late).is_ready() && !south.is_locked("p", "k").await.unwrap() {
            sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..20 {
            assert!(poll!(&mut late).is_pending());
            sleep(Duration::from_millis(3)).await;
        }
    };
    holding.await;
    let start = Instant::now();
    let forced = async {
        assert!(south.force_release("p", "k").await.unwrap());
        start.elapsed()
    };
    let seen = async {
        sleep(CLAIM / 2).await;
        assert!(!is_free(&south, "k").await, "the body still exists");
        south.inspect("p", "k").await.unwrap().unwrap()
    };
    let (took, seen) = tokio::join!(forced, seen);
    assert!(seen.is_forced && seen.holder.is_some() && seen.remaining <= CLAIM / 2 + NOISE, "{seen:?}");
    assert!(took > CLAIM * 9 / 10 && took < CLAIM * 12 / 10, "{took:?}");
    assert!(is_free(&south, "k").await);
    assert!(matches!(late.await.unwrap_err(), LockError::Lost { completed: false, forced: true, .. }));
}

async fn the_next_task_of_the_process_waits_behind_another_process(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    if !can_force(&world, &south).await {
        return;
    }
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let wait = |locks: &LockManager| {
        let request = locks.lock("p", "k").timeout(LONG);
        tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            let granted = Instant::now();
            sleep(Duration::from_millis(5)).await;
            guard.release().await.unwrap();
            granted
        })
    };
    let elsewhere = wait(&south);
    while north.inspect("p", "k").await.unwrap().unwrap().waiting.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let here = wait(&north);
    sleep(Duration::from_millis(20)).await;
    assert!(south.force_release("p", "k").await.unwrap());
    let (elsewhere, here) = (elsewhere.await.unwrap(), here.await.unwrap());
    assert!(elsewhere < here);
    drop(guard);
    if let Some(server) = world.server_of("p:k") {
        eventually("nothing is left", LONG, || server.owner("p:k").is_none()).await;
    }
}

async fn a_busy_lock_tells_when_its_lease_ends(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    let guard = north.lock("p", "k").expire(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    let busy = south.lock("p", "k").timeout(Duration::from_millis(200)).acquire().await.unwrap_err();
    // On a quorum waiters poll with plain claims, whose replies name the owner and not when its lease ends.
    if !world.is_quorum() {
        let after = busy.retry_after().expect("the store reports when the lease ends");
        assert!(after > LONG / 2 && after <= LONG, "{after:?}");
    }
    assert!(!busy.to_string().contains("this process"), "{busy}");
    let busy = north.lock("p", "k").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
    assert!(busy.to_string().contains("held by this process") && busy.retry_after().is_none(), "{busy}");
}

async fn a_body_that_releases_its_own_lock_by_force_is_stopped_there(world: World) {
    let manager = world.manager().await;
    if !can_force(&world, &manager).await {
        return;
    }
    let went_on = AtomicBool::new(false);
    let start = Instant::now();
    let stopped = manager.lock("p", "k").run(async {
        sleep(CONFIRMED).await;
        let forced = manager.force_release("p", "k").await;
        went_on.store(true, Ordering::SeqCst);
        forced
    });
    let error = stopped.await.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, forced: true, .. }), "{error:?}");
    assert!(!went_on.into_inner() && start.elapsed() < CLAIM / 2);
    let guard = manager.lock("p", "k").timeout(CLAIM / 2).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// What `lockctl release --force --holder` does.
async fn one_of_several_permits_is_released_by_force(world: World) {
    let (north, south) = (
        world.manager_with(LockManager::builder().label("north")).await,
        world.manager_with(LockManager::builder().label("south")).await,
    );
    if !can_force(&world, &north).await {
        return;
    }
    let permit = |locks: &LockManager| locks.lock("p", "k").permits(2).timeout(LONG).acquire();
    let (taken, kept) = (permit(&north).await.unwrap(), permit(&south).await.unwrap());
    let mut waiting = pin!(permit(&south));
    assert!(poll!(&mut waiting).is_pending());
    assert!(!south.force_release_named("p:k", Some("west")).await.unwrap());
    let start = Instant::now();
    let forcing = async {
        assert!(south.force_release_named("p:k", Some("north")).await.unwrap());
        taken.lost().await;
        taken.release().await.unwrap_err()
    };
    let (next, told) = tokio::join!(waiting, forcing);
    assert!(matches!(told, LockError::Lost { forced: true, .. }), "{told:?}");
    // Its permit is free as soon as its holder has stopped, and not only after a claim.
    assert!(start.elapsed() < CLAIM, "{:?}", start.elapsed());
    assert!(kept.is_valid());
    next.unwrap().release().await.unwrap();
    kept.release().await.unwrap();
    assert!(is_free(&south, "k").await);
}
