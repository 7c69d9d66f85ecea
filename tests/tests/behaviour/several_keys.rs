//! Several locks at once, all or none: [`LockManager::lock_all`].

use std::time::Duration;

use futures_util::future::join_all;
use lock_runtime::{FencingToken, LockError, LockManager};
use tests::over_every_store;
use tests::patience::{NOISE, Stopwatch};
use tests::stores::World;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::{LONG, SHORT, is_free};

over_every_store![
    all_are_held_and_all_are_released,
    a_key_given_twice_counts_once_and_the_names_are_sorted,
    no_key_at_all_is_refused,
    a_busy_key_is_named_and_nothing_stays_locked,
    a_single_try_fails_at_once_and_leaves_nothing,
    a_single_try_that_fails_has_released_its_keys_when_it_returns,
    one_timeout_is_for_all,
    a_task_that_waits_for_a_key_holds_none_behind_it,
    the_locks_are_granted_when_the_busy_key_is_released,
    opposite_orders_never_block_each_other,
    tokens_come_in_the_order_of_the_keys_given,
    a_body_is_stopped_when_one_lock_is_lost_and_the_others_are_released,
    a_request_that_lost_a_key_begins_again_with_the_time_that_is_left,
    keys_that_the_task_holds_are_entered,
    a_body_of_several_keys_is_entered_for_each,
    a_plain_acquire_of_a_held_key_is_refused,
    a_dropped_request_leaves_nothing,
    a_lease_that_is_not_renewed_begins_when_all_are_held,
    a_minimum_time_and_a_limit_hold_for_all,
    a_nested_minimum_time_begins_when_all_are_held,
    a_nested_request_that_fails_keeps_nobody_out,
];

async fn hold(manager: &LockManager, key: &str) -> lock_runtime::LockGuard {
    manager.lock("p", key).timeout(LONG).acquire().await.unwrap()
}

async fn assert_free(manager: &LockManager, keys: &[&str]) {
    for key in keys {
        let guard = manager.lock("p", *key).timeout(LONG).acquire().await;
        assert!(guard.is_ok(), "{key}: {guard:?}");
        guard.unwrap().release().await.unwrap();
    }
}

async fn all_are_held_and_all_are_released(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let guard = manager.lock_all("p", ["a", "b", "c"]).acquire().await.unwrap();
    assert!(guard.is_valid() && !guard.remaining().is_zero());
    for key in ["a", "b", "c"] {
        assert!(!is_free(&manager, key).await && !is_free(&other, key).await, "{key}");
    }
    guard.release().await.unwrap();
    assert_free(&other, &["a", "b", "c"]).await;
    drop(manager.lock_all("p", ["a", "b", "c"]).acquire().await.unwrap());
    assert_free(&other, &["a", "b", "c"]).await;
    let body = async {
        assert!(!is_free(&other, "b").await);
        7
    };
    assert_eq!(manager.lock_all("p", ["a", "b", "c"]).run(body).await.unwrap(), 7);
    assert_free(&other, &["a", "b", "c"]).await;
}

async fn a_key_given_twice_counts_once_and_the_names_are_sorted(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock_all("p", ["b", "a", "b"]).acquire().await.unwrap();
    assert_eq!(guard.keys(), ["p:a", "p:b"]);
    assert_eq!(guard.key(), "p:a");
    assert_eq!(manager.lock_all("p", ["b", "a", "b"]).key().unwrap(), "p:a");
    guard.release().await.unwrap();
    let one = manager.lock_all("p", [7, 7]).acquire().await.unwrap();
    assert_eq!(one.keys(), ["p:7"]);
    one.release().await.unwrap();
    let guard = manager.lock("p", "a").acquire().await.unwrap();
    assert_eq!(guard.keys(), ["p:a"]);
}

async fn no_key_at_all_is_refused(world: World) {
    let manager = world.manager().await;
    let error = manager.lock_all("p", [0_u8; 0]).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
    let error = manager.lock_all("p", ["a", ""]).run(async {}).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
    assert!(is_free(&manager, "a").await);
}

async fn a_busy_key_is_named_and_nothing_stays_locked(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    for holder in [&manager, &other] {
        for busy in ["a", "b", "c"] {
            let guard = hold(holder, busy).await;
            let request = manager.lock_all("p", ["c", "b", "a"]).timeout(SHORT);
            let start = Stopwatch::start();
            let error = request.acquire().await.unwrap_err();
            // Measured on another clock, a timer may end a millisecond early.
            let least = SHORT.saturating_sub(Duration::from_millis(2));
            assert!(start.counted() >= least && start.elapsed() < SHORT + NOISE, "{:?}", start.elapsed());
            // On a paused clock less passes: the machine's clock counts until the request waits, and then tokio's.
            let least = least.min(start.elapsed());
            assert!(matches!(&error, LockError::Timeout { waited, .. } if *waited >= least), "{error:?}");
            assert_eq!(error.key(), Some(format!("p:{busy}").as_str()));
            guard.release().await.unwrap();
            assert_free(&other, &["a", "b", "c"]).await;
        }
    }
}

async fn a_single_try_fails_at_once_and_leaves_nothing(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    for holder in [&manager, &other] {
        let guard = hold(holder, "b").await;
        assert!(manager.lock_all("p", ["a", "b", "c"]).try_acquire().await.unwrap().is_none());
        assert_free(&other, &["a", "c"]).await;
        guard.release().await.unwrap();
    }
    assert!(manager.lock_all("p", ["a", "b", "c"]).try_acquire().await.unwrap().is_some());
}

async fn a_single_try_that_fails_has_released_its_keys_when_it_returns(world: World) {
    let [holder, manager, third] = [world.manager().await, world.manager().await, world.manager().await];
    let guard = hold(&holder, "a").await;
    for round in 0..20 {
        assert!(manager.lock_all("p", ["a", "b", "c"]).try_acquire().await.unwrap().is_none());
        for key in ["b", "c"] {
            let free = third.lock("p", key).try_acquire().await.unwrap();
            free.unwrap_or_else(|| panic!("round {round}: {key} is still held")).release().await.unwrap();
        }
    }
    guard.release().await.unwrap();
}

async fn one_timeout_is_for_all(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let (a, b) = (hold(&other, "a").await, hold(&other, "b").await);
    let release = async {
        sleep(SHORT / 2).await;
        a.release().await.unwrap();
    };
    let start = Instant::now();
    // On a quorum waiters poll, so the first key is granted some time after its release.
    let timeout = SHORT * 3;
    let (outcome, ()) = tokio::join!(manager.lock_all("p", ["a", "b"]).timeout(timeout).acquire(), release);
    assert!(start.elapsed() < timeout + NOISE, "{:?}", start.elapsed());
    assert_eq!(outcome.unwrap_err().key(), Some("p:b"));
    b.release().await.unwrap();
    assert_free(&other, &["a", "b"]).await;
}

async fn a_task_that_waits_for_a_key_holds_none_behind_it(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let busy = hold(&other, "b").await;
    let waiting = manager.lock_all("p", ["a", "b", "c"]).timeout(LONG).acquire();
    let look = async {
        sleep(SHORT).await;
        assert!(!is_free(&other, "a").await);
        assert!(is_free(&other, "c").await);
        busy.release().await.unwrap();
    };
    let (guard, ()) = tokio::join!(waiting, look);
    assert_eq!(guard.unwrap().keys().len(), 3);
}

async fn the_locks_are_granted_when_the_busy_key_is_released(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    for holder in [&manager, &other] {
        let busy = hold(holder, "b").await;
        let release = async {
            sleep(SHORT).await;
            busy.release().await.unwrap();
            Instant::now()
        };
        let acquire = async {
            let guard = manager.lock_all("p", ["a", "b", "c"]).timeout(LONG).acquire().await.unwrap();
            let at = Instant::now();
            guard.release().await.unwrap();
            at
        };
        let (acquired, released) = tokio::join!(acquire, release);
        assert!(acquired.saturating_duration_since(released) < NOISE + world.pause());
    }
}

async fn opposite_orders_never_block_each_other(world: World) {
    let managers = [world.manager().await, world.manager().await];
    let transfer = async |manager: &LockManager, from: u8, to: u8| {
        for _ in 0..10 {
            manager.lock_all("p", [from, to]).timeout(LONG * 3).run(tokio::task::yield_now()).await.unwrap();
        }
    };
    let pairs = [(1, 2), (2, 1), (2, 3), (3, 1)];
    let start = Instant::now();
    join_all(managers.iter().flat_map(|manager| pairs.map(|(from, to)| transfer(manager, from, to)))).await;
    assert!(start.elapsed() < LONG * 3, "{:?}", start.elapsed());
}

async fn tokens_come_in_the_order_of_the_keys_given(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock_all("p", ["b", "a", "b"]).fenced(true).acquire().await.unwrap();
    let tokens: Vec<FencingToken> = guard.fencing_tokens();
    let [of_b, of_a, again] = tokens[..] else { panic!("{tokens:?}") };
    assert_eq!((of_b, guard.fencing_token()), (again, Some(of_a)));
    guard.release().await.unwrap();
    let next = manager.lock("p", "b").fenced(true).acquire().await.unwrap();
    assert!(next.fencing_token() > Some(of_b));
    assert_eq!(next.fencing_tokens().len(), 1);
    assert!(manager.lock_all("p", ["c", "d"]).acquire().await.unwrap().fencing_tokens().is_empty());
}

async fn a_body_is_stopped_when_one_lock_is_lost_and_the_others_are_released(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    if world.is_quorum() {
        return;
    }
    let (begin, begun) = oneshot::channel();
    let body = manager.lock_all("p", ["a", "b", "c"]).run(async {
        begin.send(()).unwrap();
        sleep(LONG).await;
    });
    let lose = async {
        begun.await.unwrap();
        other.force_release("p", "b").await.unwrap();
    };
    let (outcome, ()) = tokio::join!(body, lose);
    let error = outcome.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, forced: true, .. }), "{error:?}");
    assert_eq!(error.key(), Some("p:b"));
    assert_free(&other, &["a", "b", "c"]).await;
}

async fn a_request_that_lost_a_key_begins_again_with_the_time_that_is_left(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    if world.is_quorum() {
        return;
    }
    let busy = hold(&other, "b").await;
    let request = async { manager.lock_all("p", ["a", "b"]).timeout(SHORT * 5).acquire().await.unwrap() };
    let sibling = async {
        let guard = hold(&manager, "a").await;
        busy.release().await.unwrap();
        sleep(SHORT / 2).await;
        guard.release().await.unwrap();
    };
    let lose = async {
        // More than half of the request's timeout.
        sleep(SHORT * 3).await;
        assert!(other.force_release("p", "a").await.unwrap());
    };
    let (guard, (), ()) = tokio::join!(request, sibling, lose);
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_free(&other, &["a", "b"]).await;
}

async fn keys_that_the_task_holds_are_entered(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let inner = async {
        let body = async {
            assert!(!is_free(&other, "a").await && !is_free(&other, "b").await && !is_free(&other, "c").await);
        };
        manager.lock_all("p", ["a", "b", "c"]).timeout(SHORT).run(body).await.unwrap();
        assert!(!is_free(&other, "b").await, "the outer body still holds it");
        assert_free(&other, &["a", "c"]).await;
    };
    manager.lock("p", "b").run(inner).await.unwrap();
    assert_free(&other, &["a", "b", "c"]).await;
}

async fn a_body_of_several_keys_is_entered_for_each(world: World) {
    let manager = world.manager().await;
    let request = |key: &str| manager.lock("p", key).timeout(SHORT);
    let inner = async {
        let nested = request("b").run(request("a").run(async { 1 }));
        let (a, b, nested) = tokio::join!(request("a").run(async { 2 }), request("b").run(async { 3 }), nested);
        let all = manager.lock_all("p", ["b", "a"]).timeout(SHORT).run(async { 4 }).await;
        a.unwrap() + b.unwrap() + nested.unwrap().unwrap() + all.unwrap()
    };
    assert_eq!(manager.lock_all("p", ["a", "b"]).run(inner).await.unwrap(), 10);
}

async fn a_plain_acquire_of_a_held_key_is_refused(world: World) {
    let manager = world.manager().await;
    let inner = async {
        let error = manager.lock_all("p", ["a", "b"]).acquire().await.unwrap_err();
        assert!(matches!(&error, LockError::AlreadyHeld { key, .. } if key == "p:b"), "{error:?}");
        let error = manager.lock("p", "c").acquire().await.unwrap_err();
        assert!(matches!(error, LockError::AlreadyHeld { .. }), "{error:?}");
    };
    manager.lock_all("p", ["b", "c"]).run(inner).await.unwrap();
}

async fn a_dropped_request_leaves_nothing(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let busy = hold(&other, "c").await;
    let waiting = manager.lock_all("p", ["a", "b", "c"]).timeout(LONG).acquire();
    tokio::time::timeout(SHORT, waiting).await.unwrap_err();
    assert_free(&other, &["a", "b"]).await;
    busy.release().await.unwrap();
    assert_free(&other, &["c"]).await;
}

async fn a_lease_that_is_not_renewed_begins_when_all_are_held(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let busy = hold(&other, "b").await;
    let request = manager.lock_all("p", ["a", "b"]).timeout(LONG).expire(SHORT).renew(false);
    let release = async {
        sleep(SHORT * 2).await;
        busy.release().await.unwrap();
    };
    let (guard, ()) = tokio::join!(request.acquire(), release);
    let (start, guard) = (Instant::now(), guard.unwrap());
    assert!(guard.remaining() > SHORT / 2, "{:?}", guard.remaining());
    guard.lost().await;
    assert!(start.elapsed() < SHORT + NOISE, "{:?}", start.elapsed());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert_free(&other, &["a", "b"]).await;
}

async fn a_minimum_time_and_a_limit_hold_for_all(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let kept = Duration::from_secs(3);
    let request = || manager.lock_all("p", ["a", "b"]).at_least(kept);
    let start = request().run(async { Instant::now() }).await.unwrap();
    let waits = async |key: &'static str| {
        hold(&other, key).await.release().await.unwrap();
        start.elapsed()
    };
    let (a, b) = tokio::join!(waits("a"), waits("b"));
    assert!(a.min(b) >= kept && a.max(b) < kept + NOISE + world.pause(), "{a:?} {b:?}");
    let start = Stopwatch::start();
    let error = manager.lock_all("p", ["a", "b"]).max_hold(SHORT).run(sleep(LONG)).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { max_hold: Some(_), completed: false, .. }), "{error:?}");
    assert!(start.counted() >= SHORT && start.elapsed() < SHORT + NOISE, "{:?}", start.elapsed());
    assert_free(&other, &["a", "b"]).await;
}

async fn a_nested_minimum_time_begins_when_all_are_held(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let (kept, wait) = (Duration::from_secs(1), Duration::from_millis(500));
    let busy = hold(&other, "b").await;
    let both = manager.lock_all("p", ["a", "b"]).timeout(LONG).at_least(kept);
    let release = async {
        sleep(wait).await;
        busy.release().await.unwrap();
    };
    let nested = manager.lock("p", "a").run(both.run(async { Instant::now() }));
    let (start, ()) = tokio::join!(nested, release);
    let start = start.unwrap().unwrap();
    let waits = async |key: &'static str| {
        hold(&other, key).await.release().await.unwrap();
        start.elapsed()
    };
    let (a, b) = tokio::join!(waits("a"), waits("b"));
    // The minimum time starts just before the body.
    assert!(a.min(b) > kept.saturating_sub(wait / 2) && a.max(b) < kept + NOISE + world.pause(), "{a:?} {b:?}");
}

async fn a_nested_request_that_fails_keeps_nobody_out(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let kept = Duration::from_mins(1);
    let busy = hold(&other, "b").await;
    let before = manager.stats().timeouts;
    let nested = async {
        let both = || manager.lock_all("p", ["a", "b"]).at_least(kept);
        let error = both().timeout(Duration::ZERO).run(async {}).await.unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        assert!(tokio::time::timeout(SHORT, both().timeout(LONG).run(async {})).await.is_err());
        // Joined calls enter the lock one after the other.
        let first = manager.lock("p", "a").run(sleep(SHORT));
        let second = async {
            tokio::task::yield_now().await;
            manager.lock_all("p", ["a"]).timeout(Duration::ZERO).run(async {}).await
        };
        let (first, second) = tokio::join!(first, second);
        first.unwrap();
        assert!(second.unwrap_err().is_timeout());
    };
    manager.lock("p", "a").run(nested).await.unwrap();
    assert_eq!(manager.stats().timeouts, before + 2);
    assert_free(&other, &["a"]).await;
    busy.release().await.unwrap();
    assert_free(&other, &["b"]).await;
}
