//! A lease that is kept for the next local hold: [`LockRequest::linger`](lock_runtime::LockRequest::linger).

use std::ops::Range;
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest};
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::server::Server;
use tests::stores::World;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::leaks::memory;
use crate::{LONG, is_free};

over_every_store![
    the_next_holds_need_no_command,
    another_process_that_waits_gets_the_lock_at_once,
    a_single_try_of_another_process_is_busy,
    it_is_released_when_its_time_is_over,
    a_shutdown_releases_what_lingers,
    the_drop_of_the_manager_releases_what_lingers,
    a_lock_that_lingers_can_be_taken_by_force,
];

const LINGER: Duration = Duration::from_secs(2);

/// The key of the lock, and whether its users are readers.
const MODES: [(&str, bool); 2] = [("k", false), ("read", true)];

/// A lingering request for the lock. `None` where the library refuses to linger; then this fn has checked the refusal.
async fn lingering(world: &World, manager: &LockManager) -> Option<impl Fn() -> LockRequest + use<>> {
    lingering_in(MODES[0], world, manager).await
}

async fn lingering_in(
    (key, reads): (&'static str, bool),
    world: &World,
    manager: &LockManager,
) -> Option<impl Fn() -> LockRequest + use<>> {
    let of = manager.clone();
    let request = move || {
        let request = of.lock("p", key).timeout(LONG).linger(LINGER);
        if reads { request.read() } else { request }
    };
    if world.is_quorum() {
        let refused = request().acquire().await;
        assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "linger", .. })), "{refused:?}");
        return None;
    }
    // Nothing lingers before the keeper is connected.
    while manager.stats().lingering == 0 {
        request().acquire().await.unwrap().release().await.unwrap();
        sleep(Duration::from_millis(2)).await;
    }
    Some(request)
}

async fn the_next_holds_need_no_command(world: World) {
    for mode in MODES {
        let manager = world.manager().await;
        let Some(request) = lingering_in(mode, &world, &manager).await else { return };
        let (before, acquired, start) = (manager.stats().commands, manager.stats().acquired, Instant::now());
        for _ in 0..1000 {
            request().run(async {}).await.unwrap();
        }
        let commands = manager.stats().commands - before;
        // At most one command a second for the lock, and in a cluster the checks of its topology.
        assert!(commands <= 3 + start.elapsed().as_secs(), "{commands} in {:?}", start.elapsed());
        assert_eq!((manager.stats().acquired - acquired, manager.stats().lost), (1000, 0));
    }
}

async fn another_process_that_waits_gets_the_lock_at_once(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    assert!(is_free(&other, "warm").await);
    for mode in MODES {
        let Some(request) = lingering_in(mode, &world, &manager).await else { return };
        for _ in 0..5 {
            request().acquire().await.unwrap().release().await.unwrap();
            let start = Instant::now();
            let guard = other.lock("p", mode.0).timeout(LONG).acquire().await.unwrap();
            assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
            guard.release().await.unwrap();
        }
    }
}

/// A single try does not wait until the other process yields the lease.
async fn a_single_try_of_another_process_is_busy(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    assert!(is_free(&other, "warm").await);
    let Some(_request) = lingering(&world, &manager).await else { return };
    assert!(!is_free(&other, "k").await);
    assert_eq!(manager.stats().lingering, 1);
}

async fn it_is_released_when_its_time_is_over(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let Some(_request) = lingering(&world, &manager).await else { return };
    let start = Instant::now();
    while other.is_locked("p", "k").await.unwrap() {
        sleep(Duration::from_millis(20)).await;
    }
    let lingered = start.elapsed();
    assert!(lingered + NOISE > LINGER && lingered < LINGER + NOISE, "{lingered:?}");
    eventually("nothing is left", LONG, || manager.stats().keys == 0).await;
}

async fn a_shutdown_releases_what_lingers(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let Some(_request) = lingering(&world, &manager).await else { return };
    let start = Instant::now();
    manager.shutdown().await;
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
    assert!(!other.is_locked("p", "k").await.unwrap());
}

async fn the_drop_of_the_manager_releases_what_lingers(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let Some(request) = lingering(&world, &manager).await else { return };
    drop((manager, request));
    let start = Instant::now();
    while other.is_locked("p", "k").await.unwrap() {
        assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
}

async fn a_lock_that_lingers_can_be_taken_by_force(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let Some(_request) = lingering(&world, &manager).await else { return };
    assert!(!manager.inspect("p", "k").await.unwrap().unwrap().is_held_here);
    let start = Instant::now();
    assert!(other.force_release("p", "k").await.unwrap());
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
    assert_eq!((manager.stats().lingering, manager.stats().lost), (0, 0));
}

/// `LINGERING=1000000` for more keys. The first half warms up: it shows what a process and a server keep after any use.
#[tokio::test]
async fn a_hundred_thousand_locks_that_lingered_leave_nothing() {
    let keys = std::env::var("LINGERING").map_or(100_000, |keys| keys.parse().unwrap());
    let server = Server::start();
    let manager = LockManager::builder().url(&server.url()).max_lingering(10_000).connect().await.unwrap();
    let round = async |keys: Range<usize>| {
        let mut users = JoinSet::new();
        let tasks = 200;
        for task in 0..tasks {
            let (manager, keys) = (manager.clone(), keys.clone());
            users.spawn(async move {
                for key in keys.skip(task).step_by(tasks) {
                    let request = manager.lock("p", &key).timeout(LONG * 6).linger(LINGER);
                    request.acquire().await.unwrap().release().await.unwrap();
                }
            });
        }
        users.join_all().await;
        assert!(manager.stats().lingering > 0);
        eventually("nothing is left", LONG * 6, || manager.stats().keys == 0 && manager.stats().unreleased == 0).await;
        assert_eq!(server.keys().len(), 0);
    };
    round(0..keys / 2).await;
    let before = (memory(), memory_of(&server));
    round(keys / 2..keys).await;
    let (grown, grown_there) = (memory().saturating_sub(before.0), memory_of(&server).saturating_sub(before.1));
    assert!(grown < 3_000_000 && grown_there < 1_000_000, "{grown} bytes more here, {grown_there} in the server");
    assert_eq!(manager.stats().lost, 0);
}

/// The memory that the server uses, in bytes.
fn memory_of(server: &Server) -> usize {
    let told = server.ask::<String>("INFO memory");
    let used = told.lines().find_map(|line| line.strip_prefix("used_memory:"));
    used.unwrap().trim().parse().unwrap()
}
