//! At most N tasks hold a lock with N permits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockMode};
use tests::over_every_store;
use tests::patience::NOISE;
use tests::stores::World;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG, SHORT, is_free, refuses_sharing};

over_every_store![
    no_more_than_n_hold_permits,
    permits_are_never_too_many_and_all_are_used,
    a_permit_that_comes_free_goes_to_the_next,
    tasks_of_one_process_get_permits_first_come_first_served,
    each_number_of_permits_counts_all_holders,
    a_waiter_is_served_although_its_process_has_other_queues,
    an_exclusive_request_waits_for_all_permits,
    a_permit_lasts_beyond_its_lease_and_is_lost_alone,
    a_body_inside_of_a_permit_has_the_same_permit,
    permits_have_growing_fencing_tokens,
    a_look_shows_all_permits,
    a_waiter_that_gives_up_leaves_its_permit_to_others,
    zero_permits_are_refused,
];

async fn permit(manager: &LockManager, of: u32) -> LockGuard {
    manager.lock("p", "k").permits(of).timeout(LONG).acquire().await.unwrap()
}

async fn can_have(manager: &LockManager, of: u32) -> bool {
    let Some(guard) = manager.lock("p", "k").permits(of).try_acquire().await.unwrap() else { return false };
    // Don't drop the guard: its permit would be missing until the release in the background.
    guard.release().await.unwrap();
    true
}

/// Dropped guards are released in the background.
async fn assert_free_soon(manager: &LockManager) {
    let start = Instant::now();
    manager.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
}

async fn no_more_than_n_hold_permits(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let mut guards = Vec::new();
    for manager in [&north, &south, &north] {
        assert!(can_have(&south, 3).await);
        guards.push(permit(manager, 3).await);
    }
    for manager in [&north, &south] {
        assert!(!can_have(manager, 3).await, "a fourth permit of three");
        let refused = manager.lock("p", "k").permits(3).timeout(Duration::from_millis(30)).acquire().await.unwrap_err();
        assert!(refused.is_timeout(), "{refused}");
    }
    assert_eq!((north.stats().held, south.stats().held), (2, 1));
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert!(is_free(&north, "k").await);
}

async fn permits_are_never_too_many_and_all_are_used(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let managers = [world.manager().await, world.manager().await];
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let users: Vec<_> = (0..20)
        .map(|number| {
            let (manager, inside, most) = (managers[number % 2].clone(), Arc::clone(&inside), Arc::clone(&most));
            tokio::spawn(async move {
                for round in 0..10 {
                    let guard = permit(&manager, 3).await;
                    let count = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(count <= 3, "{count} permits of three");
                    most.fetch_max(count, Ordering::SeqCst);
                    sleep(Duration::from_millis(u64::try_from((number + round) % 4).unwrap())).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if round % 3 == 0 { drop(guard) } else { guard.release().await.unwrap() }
                }
            })
        })
        .collect();
    for user in users {
        user.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_free_soon(&managers[0]).await;
}

async fn a_permit_that_comes_free_goes_to_the_next(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    for (holds, waits) in [(&north, &south), (&north, &north)] {
        let (one, _other) = (permit(holds, 2).await, permit(&south, 2).await);
        let mut waiting = Box::pin(permit(waits, 2));
        assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        let start = Instant::now();
        one.release().await.unwrap();
        waiting.await.release().await.unwrap();
        assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
    }
}

async fn tasks_of_one_process_get_permits_first_come_first_served(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let guards = [permit(&manager, 2).await, permit(&manager, 2).await];
    let (order, mut users) = (Arc::new(std::sync::Mutex::new(Vec::new())), Vec::new());
    for number in 0..12 {
        let (manager, order) = (manager.clone(), Arc::clone(&order));
        users.push(tokio::spawn(async move {
            let guard = permit(&manager, 2).await;
            order.lock().unwrap().push(number);
            sleep(Duration::from_millis(2)).await;
            guard.release().await.unwrap();
        }));
        sleep(Duration::from_millis(3)).await;
    }
    let [first, second] = guards;
    first.release().await.unwrap();
    sleep(Duration::from_millis(1)).await;
    second.release().await.unwrap();
    for user in users {
        user.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    // Two permits may become free at nearly the same moment.
    assert!(order.iter().enumerate().all(|(place, number)| place.abs_diff(*number) <= 1), "{order:?}");
}

async fn each_number_of_permits_counts_all_holders(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let _guards = [permit(&north, 4).await, permit(&south, 4).await];
    assert!(!can_have(&north, 2).await && !can_have(&south, 1).await);
    let _third = permit(&north, 3).await;
    assert!(can_have(&south, 4).await && !can_have(&south, 3).await);
}

async fn a_waiter_is_served_although_its_process_has_other_queues(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    for numbers in [None, Some(3)] {
        let mut crowd = JoinSet::new();
        for millis in [5, 7, 11, 13, 17, 19] {
            let manager = manager.clone();
            crowd.spawn(async move {
                loop {
                    let request = manager.lock("p", "k").timeout(LONG);
                    let request = match numbers {
                        Some(permits) => request.permits(permits),
                        None => request.read(),
                    };
                    request.run(sleep(Duration::from_millis(millis))).await.unwrap();
                }
            });
        }
        sleep(SHORT).await;
        let start = Instant::now();
        permit(&manager, 1).await.release().await.unwrap();
        assert!(start.elapsed() < NOISE * 2, "{:?}", start.elapsed());
        crowd.shutdown().await;
    }
    assert_free_soon(&manager).await;
}

async fn an_exclusive_request_waits_for_all_permits(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let (one, other) = (permit(&north, 3).await, permit(&south, 3).await);
    let mut alone = Box::pin(north.lock("p", "k").timeout(LONG).acquire());
    assert!(timeout(Duration::from_millis(50), &mut alone).await.is_err());
    assert!(!can_have(&south, 3).await, "a permit overtakes an exclusive request");
    one.release().await.unwrap();
    assert!(timeout(Duration::from_millis(20), &mut alone).await.is_err());
    other.release().await.unwrap();
    let alone = timeout(LONG / 2, alone).await.unwrap().unwrap();
    assert!(!can_have(&south, 3).await);
    alone.release().await.unwrap();
}

async fn a_permit_lasts_beyond_its_lease_and_is_lost_alone(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let request = |renew| north.lock("p", "k").permits(2).expire(SHORT).renew(renew);
    let (lasting, short) = (request(true).acquire().await.unwrap(), request(false).acquire().await.unwrap());
    let waiting = south.lock("p", "k").permits(2).timeout(LONG).acquire();
    timeout(SHORT + NOISE, short.lost()).await.unwrap();
    drop(short);
    timeout(LONG / 2, waiting).await.unwrap().unwrap().release().await.unwrap();
    sleep(SHORT * 2).await;
    assert!(lasting.is_valid());
    lasting.release().await.unwrap();
}

async fn a_body_inside_of_a_permit_has_the_same_permit(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let request = || manager.lock("p", "k").permits(1).timeout(SHORT);
    let inner = request().run(async { manager.lock("p", "k").timeout(LONG).run(async {}).await });
    let refused = request().run(inner).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(refused, LockError::AlreadyHeld { wants_more: true, .. }), "{refused:?}");
    assert!(is_free(&manager, "k").await);
}

async fn permits_have_growing_fencing_tokens(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let managers = [world.manager().await, world.manager().await];
    let mut last = None;
    let mut guards: Vec<LockGuard> = Vec::new();
    for round in 0..12 {
        if guards.len() == 3 {
            drop(guards.remove(round % 3));
        }
        let request = managers[round % 2].lock("p", "k").permits(3).timeout(LONG).fenced(true);
        let guard = request.acquire().await.unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guards.push(guard);
    }
}

async fn a_look_shows_all_permits(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let north = world.manager_with(LockManager::builder().label("north")).await;
    let south = world.manager_with(LockManager::builder().label("south")).await;
    let _guards = [permit(&north, 4).await, permit(&north, 4).await, permit(&south, 4).await];
    let seen = south.inspect("p", "k").await.unwrap().unwrap();
    assert_eq!(seen.holders, ["north", "north", "south"]);
    assert!(matches!(seen.mode, LockMode::Permits { of: 4, .. }), "{seen:?}");
}

async fn a_waiter_that_gives_up_leaves_its_permit_to_others(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let held = permit(&north, 1).await;
    for manager in [&north, &south, &south] {
        assert!(timeout(Duration::from_millis(20), permit(manager, 1)).await.is_err());
    }
    held.release().await.unwrap();
    let start = Instant::now();
    for manager in [&south, &north, &south] {
        permit(manager, 1).await.release().await.unwrap();
    }
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
}

async fn zero_permits_are_refused(world: World) {
    let manager = world.manager().await;
    for refused in
        [manager.lock("p", "k").permits(0).acquire().await, manager.lock("p", "k").read().permits(2).acquire().await]
    {
        assert!(matches!(refused, Err(LockError::InvalidSetting { .. })), "{refused:?}");
    }
    assert_eq!(manager.stats().acquired, 0);
}
