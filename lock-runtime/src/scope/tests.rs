//! Tests: which futures are part of a body, and which are separate tasks that an executor polls inside the body.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_executor::LocalPool;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::task::LocalSpawnExt;
use futures_util::{StreamExt, stream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{LocalSet, block_in_place, yield_now};

use crate::LockManager;

/// Whether this code runs inside a body that holds `p:k`. Only then does a nested body enter at once.
async fn is_inside(locks: &LockManager) -> bool {
    locks.lock("p", "k").timeout(Duration::ZERO).run(async {}).await.is_ok()
}

/// [`is_inside`] as a future that another task may poll.
fn asked(locks: &LockManager) -> impl Future<Output = bool> + 'static {
    let locks = locks.clone();
    async move { is_inside(&locks).await }
}

/// Whether this code runs in a manager's scope.
fn is_in_scope() -> bool {
    LockManager::current().is_some()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_was_spawned_before_and_is_polled_inside_a_body_is_not_part_of_it() {
    let locks = LockManager::in_memory();
    let local = LocalSet::new();
    local
        .run_until(async {
            let (say, said) = tokio::sync::oneshot::channel::<()>();
            let asking = asked(&locks);
            let stranger = tokio::task::spawn_local(async move {
                said.await.unwrap();
                (asking.await, is_in_scope())
            });
            let inner = LocalSet::new();
            let body = async {
                say.send(()).unwrap();
                // Polls the tasks that were spawned on this executor, inside this body's poll.
                let child = inner.spawn_local(asked(&locks));
                let child = inner.run_until(child).await.unwrap();
                (child, stranger.await.unwrap())
            };
            let (child, stranger) = locks.scope(locks.lock("p", "k").run(body)).await.unwrap();
            assert!(!child, "a task that was spawned inside of the body is in it");
            assert_eq!(stranger, (false, false));
        })
        .await;
}

#[tokio::test]
async fn a_local_set_that_is_driven_inside_a_body_has_tasks_of_its_own() {
    let locks = LockManager::in_memory();
    let local = LocalSet::new();
    let stranger = local.spawn_local({
        let asking = asked(&locks);
        async move { (asking.await, is_in_scope()) }
    });
    let body = local.run_until(async { (stranger.await.unwrap(), is_inside(&locks).await, is_in_scope()) });
    let outcome = locks.scope(locks.lock("p", "k").run(body)).await.unwrap();
    assert_eq!(outcome, ((false, false), true, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_driven_inside_a_body_has_tasks_of_its_own() {
    let locks = LockManager::in_memory();
    let body = async {
        block_in_place(|| {
            let runtime = current_thread();
            let spawned = runtime.spawn(asked(&locks));
            runtime.block_on(async { (spawned.await.unwrap(), is_inside(&locks).await) })
        })
    };
    let in_a_task = locks.clone();
    let outcome = locks.lock("p", "k").run(body).await.unwrap();
    assert_eq!(outcome, (false, true), "at the root of a runtime");
    let outcome = tokio::spawn(async move {
        let body = async {
            block_in_place(|| {
                let runtime = current_thread();
                let spawned = runtime.spawn(asked(&in_a_task));
                runtime.block_on(async { (spawned.await.unwrap(), is_inside(&in_a_task).await) })
            })
        };
        in_a_task.lock("p", "k").run(body).await.unwrap()
    });
    assert_eq!(outcome.await.unwrap(), (false, true), "in a task");
}

#[tokio::test]
async fn a_pool_that_is_driven_inside_a_body_has_tasks_of_its_own() {
    let locks = LockManager::in_memory();
    let body = async {
        let mut pool = LocalPool::new();
        let spawned = pool.spawner().spawn_local_with_handle({
            let asking = asked(&locks);
            async move { (asking.await, is_in_scope()) }
        });
        let outcome = pool.run_until(spawned.unwrap());
        (outcome, is_inside(&locks).await)
    };
    let outcome = locks.scope(locks.lock("p", "k").run(body)).await.unwrap();
    assert_eq!(outcome, ((false, false), true));
}

#[test]
fn a_body_in_a_task_of_a_pool_is_entered_by_what_it_awaits() {
    let locks = LockManager::in_memory();
    let runtime = current_thread();
    let _entered = runtime.enter();
    assert!(LocalPool::new().run_until(locks.lock("p", "k").run(is_inside(&locks))).unwrap());
    assert!(futures_executor::block_on(locks.lock("p", "k").run(is_inside(&locks))).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn joined_selected_and_buffered_futures_are_part_of_the_body() {
    let locks = LockManager::in_memory();
    let body = async {
        let mut inside = Vec::new();
        let wait = || async {
            yield_now().await;
            locks.lock("p", "k").run(async { yield_now().await }).await.is_ok()
        };
        let (one, other) = tokio::join!(wait(), wait());
        inside.extend([one, other]);
        inside.push(tokio::select! { one = wait() => one, other = wait() => other });
        inside.extend(join_all((0..40).map(|_| wait())).await);
        inside.extend([wait(), wait()].into_iter().collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await);
        inside.extend(stream::iter(0..4).map(|_| wait()).buffered(2).collect::<Vec<_>>().await);
        inside.extend(stream::iter(0..4).map(|_| wait()).buffer_unordered(2).collect::<Vec<_>>().await);
        let boxed: std::pin::Pin<Box<dyn Future<Output = bool> + Send>> = Box::pin(wait());
        inside.push(boxed.await);
        inside.push(block_in_place(|| Handle::current().block_on(is_inside(&locks))));
        inside
    };
    let inside = locks.lock("p", "k").run(body).await.unwrap();
    assert_eq!(inside, vec![true; inside.len()]);
    assert!(inside.len() > 50);
}

#[tokio::test]
async fn what_is_spawned_and_collected_inside_a_body_is_not_part_of_it() {
    let locks = LockManager::in_memory();
    let body = async {
        let handles: FuturesUnordered<_> = (0..4).map(|_| tokio::spawn(asked(&locks))).collect();
        handles.map(Result::unwrap).collect::<Vec<_>>().await
    };
    assert_eq!(locks.lock("p", "k").run(body).await.unwrap(), vec![false; 4]);
}

#[tokio::test]
async fn a_body_that_moves_to_another_task_stays_inside_its_own_lock() {
    let locks = LockManager::in_memory();
    let moved = locks.clone();
    let mut body = Box::pin(async move {
        let inner = async {
            yield_now().await;
            is_inside(&moved).await
        };
        moved.lock("p", "k").run(inner).await.unwrap()
    });
    assert!(poll_fn(|context| Poll::Ready(body.as_mut().poll(context).is_pending())).await);
    assert!(tokio::spawn(body).await.unwrap());
}

#[tokio::test]
async fn an_inner_body_that_moves_to_another_task_leaves_the_outer_one() {
    let locks = LockManager::in_memory();
    let moved = locks.clone();
    let body = async {
        let mut inner = Box::pin(async move {
            let inner = async {
                yield_now().await;
                is_inside(&moved).await
            };
            moved.lock("p", "other").run(inner).await.unwrap()
        });
        assert!(poll_fn(|context| Poll::Ready(inner.as_mut().poll(context).is_pending())).await);
        tokio::spawn(inner).await.unwrap()
    };
    assert!(!locks.lock("p", "k").run(body).await.unwrap());
}

#[tokio::test]
async fn an_inner_body_that_began_outside_enters_what_is_around_it_when_it_asks() {
    let locks = LockManager::in_memory();
    let inner = async {
        yield_now().await;
        is_inside(&locks).await
    };
    let mut inner = pin!(locks.lock("p", "other").run(inner));
    assert!(poll_fn(|context| Poll::Ready(inner.as_mut().poll(context).is_pending())).await);
    assert!(locks.lock("p", "k").run(inner).await.unwrap().unwrap());
}

/// Two unrelated critical sections. One is polled inside the other.
#[tokio::test]
async fn bodies_of_tasks_on_one_local_set_exclude_each_other() {
    use std::cell::Cell;
    use std::rc::Rc;
    let (locks, inside, overlaps) = (LockManager::in_memory(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let enter = {
        let (inside, overlaps) = (Rc::clone(&inside), Rc::clone(&overlaps));
        move || {
            inside.set(inside.get() + 1);
            overlaps.set(overlaps.get() + u32::from(inside.get() > 1));
        }
    };
    let local = LocalSet::new();
    let stranger = local.spawn_local({
        let (locks, inside, enter) = (locks.clone(), Rc::clone(&inside), enter.clone());
        async move {
            for _ in 0..20 {
                let body = async {
                    enter();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    inside.set(inside.get() - 1);
                };
                locks.lock("p", "k").timeout(Duration::from_secs(10)).run(body).await.unwrap();
                yield_now().await;
            }
        }
    });
    for _ in 0..20 {
        let body = async {
            enter();
            local.run_until(tokio::time::sleep(Duration::from_millis(2))).await;
            inside.set(inside.get() - 1);
        };
        let body = locks.lock("p", "k").timeout(Duration::from_secs(10)).run(body);
        // The unrelated task continues while this task waits for the lock.
        tokio::select! {
            biased;
            outcome = body => outcome.unwrap(),
            () = local.run_until(std::future::pending()) => {}
        }
    }
    local.run_until(stranger).await.unwrap();
    assert_eq!(overlaps.get(), 0);
}
