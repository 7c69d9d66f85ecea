//! The newest request wins: [`LockRequest::on_busy`](lock_runtime::LockRequest::on_busy) with [`OnBusy::Replace`].

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest, OnBusy};
use tests::over_every_store;
use tests::patience::{NOISE, at_rest};
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{Dropped, LONG, SHORT, wait_until_free};

over_every_store![
    the_body_of_another_process_is_dropped_before_the_newest_starts,
    the_body_of_a_task_here_is_dropped_before_the_newest_starts,
    a_guard_reports_that_it_was_replaced,
    a_free_lock_is_taken_as_usual,
    the_newest_is_served_before_all_waiters,
    in_a_storm_the_newest_runs_and_never_two_at_once,
    only_the_newest_of_several_waiters_runs,
    the_newest_waits_within_its_timeout,
    a_body_that_enters_again_replaces_nobody,
    a_lock_that_rests_or_lingers_or_awaits_its_adopter_is_replaced,
    readers_are_replaced,
    a_request_that_waits_replaces_nobody,
    what_has_no_meaning_is_refused,
];

/// Whether the store can't take a lock from its holder. If so, checks that it refuses without sending a command.
async fn refuses_force(world: &World) -> bool {
    if !world.is_quorum() {
        return false;
    }
    let manager = world.manager().await;
    let before = at_rest("the servers are greeted", LONG, || manager.stats().commands).await;
    let refused = newest(&manager).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::InvalidSetting { setting: "on_busy", .. }), "{refused:?}");
    assert!(refused.to_string().contains("a quorum's lock can't be taken away"), "{refused}");
    assert_eq!(manager.stats().commands, before);
    true
}

fn newest(manager: &LockManager) -> LockRequest {
    manager.lock("p", "k").timeout(LONG).on_busy(OnBusy::Replace)
}

fn assert_replaced<T>(outcome: Result<T, LockError>) {
    let error = outcome.map(drop).unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, forced: true, .. }), "{error:?}");
}

/// A body that never ends, and records that it was dropped.
async fn forever(is_dropped: &Arc<AtomicBool>) {
    let _dropped = Dropped(Arc::clone(is_dropped));
    std::future::pending::<()>().await;
}

async fn replaces(older: &LockManager, newer: &LockManager) {
    let is_dropped = Arc::new(AtomicBool::new(false));
    let held = older.lock("p", "k").timeout(LONG).run(forever(&is_dropped));
    let next = async {
        sleep(SHORT).await;
        let start = Instant::now();
        newest(newer).run(async { assert!(is_dropped.load(Ordering::SeqCst), "two bodies at once") }).await.unwrap();
        start.elapsed()
    };
    let (held, took) = tokio::join!(held, next);
    assert_replaced(held);
    assert!(took < NOISE, "{took:?}");
    wait_until_free(older, "k").await;
    wait_until_free(newer, "k").await;
}

async fn the_body_of_another_process_is_dropped_before_the_newest_starts(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (older, newer) = (world.manager().await, world.manager().await);
    for _ in 0..3 {
        replaces(&older, &newer).await;
        replaces(&newer, &older).await;
    }
}

async fn the_body_of_a_task_here_is_dropped_before_the_newest_starts(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let manager = world.manager().await;
    for _ in 0..3 {
        replaces(&manager, &manager).await;
    }
}

async fn a_guard_reports_that_it_was_replaced(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (older, other) = (world.manager().await, world.manager().await);
    for newer in [&other, &older] {
        let guard = older.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        let (next, ()) = tokio::join!(newest(newer).acquire(), guard.lost());
        let next = next.unwrap();
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, LockError::Lost { completed: true, forced: true, .. }), "{error:?}");
        assert!(next.is_valid());
        next.extend(LONG).await.unwrap();
        next.release().await.unwrap();
    }
}

async fn a_free_lock_is_taken_as_usual(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (manager, other) = (world.manager().await, world.manager().await);
    for _ in 0..3 {
        newest(&manager).fenced(true).acquire().await.unwrap().release().await.unwrap();
        newest(&other).run(async {}).await.unwrap();
    }
    assert_eq!((manager.stats().lost, other.stats().lost), (0, 0));
}

async fn the_newest_is_served_before_all_waiters(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (older, newer, other) = (world.manager().await, world.manager().await, world.manager().await);
    let guard = older.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let request = |manager: &LockManager| manager.lock("p", "k").timeout(LONG).acquire();
    let (mut there, mut beside, mut here) = (pin!(request(&other)), pin!(request(&newer)), pin!(request(&older)));
    let all = async {
        tokio::select! { _ = &mut there => {}, _ = &mut beside => {}, _ = &mut here => {}, () = sleep(SHORT) => {} }
    };
    all.await;
    let next = async {
        let holder = async {
            guard.lost().await;
            drop(guard);
        };
        let (next, ()) = tokio::join!(newest(&newer).acquire(), holder);
        sleep(SHORT).await;
        next.unwrap()
    };
    let next = tokio::select! {
        next = next => next,
        early = &mut there => panic!("it overtook the newest: {early:?}"),
        early = &mut beside => panic!("it overtook the newest: {early:?}"),
        _ = &mut here => panic!("it overtook the newest"),
    };
    assert!(next.is_valid());
    next.release().await.unwrap();
    let (there, beside, here) = tokio::join!(
        async { there.await.unwrap().release().await },
        async { beside.await.unwrap().release().await },
        async { here.await.unwrap().release().await },
    );
    for outcome in [there, beside, here] {
        outcome.unwrap();
    }
}

async fn in_a_storm_the_newest_runs_and_never_two_at_once(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let managers = [world.manager().await, world.manager().await, world.manager().await];
    let running = Arc::new(AtomicU32::new(0));
    let runs = async |number: u32| {
        sleep(Duration::from_millis(u64::from(number) * 20)).await;
        let manager = &managers[usize::try_from(number % 3).unwrap()];
        let body = async {
            struct Runs(Arc<AtomicU32>);
            impl Drop for Runs {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::SeqCst);
                }
            }
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
            let _runs = Runs(Arc::clone(&running));
            sleep(SHORT).await;
        };
        newest(manager).run(body).await
    };
    let outcomes = futures_util::future::join_all((0..12).map(runs)).await;
    for outcome in &outcomes {
        let is_replaced = matches!(outcome, Err(LockError::Lost { completed: false, forced: true, .. }));
        assert!(outcome.is_ok() || is_replaced, "{outcome:?}");
    }
    assert!(outcomes.last().unwrap().is_ok(), "the newest was replaced: {outcomes:?}");
    for manager in &managers {
        wait_until_free(manager, "k").await;
    }
}

async fn only_the_newest_of_several_waiters_runs(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (one, other) = (world.manager().await, world.manager().await);
    for managers in [[&one; 4], [&other; 4], [&one, &other, &one, &other]] {
        // The body is not polled meanwhile, so it does not stop.
        let is_dropped = Arc::new(AtomicBool::new(false));
        let mut held = Box::pin(one.lock("p", "k").timeout(LONG).run(forever(&is_dropped)));
        assert!(tokio::time::timeout(SHORT, &mut held).await.is_err());
        let runs = Arc::new(AtomicU32::new(0));
        let mut calls = Vec::new();
        for manager in managers {
            let runs = Arc::clone(&runs);
            calls.push(tokio::spawn(newest(manager).run(async move {
                runs.fetch_add(1, Ordering::SeqCst);
            })));
            sleep(SHORT / 3).await;
        }
        let last = calls.pop().unwrap();
        for older in calls {
            assert_replaced(older.await.unwrap());
        }
        drop(held);
        last.await.unwrap().unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 1, "an older one has run");
    }
}

async fn the_newest_waits_within_its_timeout(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (older, newer) = (world.manager().await, world.manager().await);
    let is_dropped = Arc::new(AtomicBool::new(false));
    let (begun, begins) = tokio::sync::oneshot::channel::<()>();
    let body = async {
        begun.send(()).unwrap();
        forever(&is_dropped).await;
    };
    let mut held = pin!(older.lock("p", "k").timeout(LONG).run(body));
    tokio::select! { _ = &mut held => panic!("it never ends"), begun = begins => begun.unwrap() }
    // The body is not polled meanwhile, so it is not dropped.
    let start = Instant::now();
    let late = newest(&newer).timeout(SHORT).acquire().await.unwrap_err();
    assert!(late.is_timeout() && start.elapsed() < SHORT + NOISE, "{late:?} {:?}", start.elapsed());
    assert!(!is_dropped.load(Ordering::SeqCst));
    assert_replaced(held.await);
    assert!(is_dropped.load(Ordering::SeqCst));
    wait_until_free(&newer, "k").await;
}

async fn a_body_that_enters_again_replaces_nobody(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let manager = world.manager().await;
    let inner = newest(&manager).run(async { 7 });
    assert_eq!(newest(&manager).run(inner).await.unwrap().unwrap(), 7);
    let inner = newest(&manager).acquire();
    let refused = newest(&manager).run(inner).await.unwrap().unwrap_err();
    assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
}

async fn a_lock_that_rests_or_lingers_or_awaits_its_adopter_is_replaced(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (older, newer) = (world.manager().await, world.manager().await);
    let request = || older.lock("p", "k").timeout(LONG);
    let start = Instant::now();
    request().at_least(LONG).run(async {}).await.unwrap();
    newest(&newer).run(async {}).await.unwrap();
    request().linger(Duration::from_secs(2)).run(async {}).await.unwrap();
    newest(&newer).run(async {}).await.unwrap();
    request().linger(Duration::from_secs(2)).run(async {}).await.unwrap();
    newest(&older).run(async {}).await.unwrap();
    let ticket = request().acquire().await.unwrap().into_ticket(LONG * 3).await.unwrap();
    newest(&newer).run(async {}).await.unwrap();
    assert!(older.adopt(ticket).await.unwrap_err().is_lost());
    assert!(start.elapsed() < NOISE * 4, "{:?}", start.elapsed());
}

async fn readers_are_replaced(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let (older, newer) = (world.manager().await, world.manager().await);
    for writer in [&newer, &older] {
        let (one, other) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let reads = |is_dropped| older.lock("p", "k").read().timeout(LONG).run(forever(is_dropped));
        let next = async {
            sleep(SHORT).await;
            newest(writer)
                .run(async {
                    assert!(one.load(Ordering::SeqCst) && other.load(Ordering::SeqCst), "a reader still runs");
                })
                .await
        };
        let (first, second, next) = tokio::join!(reads(&one), reads(&other), next);
        next.unwrap();
        assert_replaced(first);
        assert_replaced(second);
    }
}

async fn a_request_that_waits_replaces_nobody(world: World) {
    if refuses_force(&world).await {
        return;
    }
    let manager = world.manager().await;
    let guard = newest(&manager).acquire().await.unwrap();
    let busy = manager.lock("p", "k").on_busy(OnBusy::Wait).timeout(SHORT).acquire().await.unwrap_err();
    assert!(busy.is_timeout() && guard.is_valid());
    guard.release().await.unwrap();
}

async fn what_has_no_meaning_is_refused(world: World) {
    let manager = world.manager().await;
    let before = at_rest("the servers are greeted", LONG, || manager.stats().commands).await;
    let refused = [
        newest(&manager).read().acquire().await.unwrap_err(),
        newest(&manager).permits(2).acquire().await.unwrap_err(),
        newest(&manager).timeout(Duration::ZERO).run(async {}).await.unwrap_err(),
        newest(&manager).try_acquire().await.unwrap_err(),
        manager.lock_all("p", ["k", "l"]).on_busy(OnBusy::Replace).acquire().await.unwrap_err(),
    ];
    for refused in refused {
        assert!(matches!(refused, LockError::InvalidSetting { setting: "on_busy", .. }), "{refused:?}");
    }
    assert_eq!(manager.stats().commands, before);
}
