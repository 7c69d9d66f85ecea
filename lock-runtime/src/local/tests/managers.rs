//! Tests: a manager's keeper continues on another runtime, and ends with the manager. A body may shut the manager down.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep};

use crate::{LockError, LockManager};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn holds_are_looked_after_on_whichever_runtime_the_manager_is_used() {
    let locks = LockManager::in_memory();
    for _ in 0..2 {
        runtime().block_on(async {
            let guard = locks.lock("p", "k").expire(Duration::from_secs(4)).renew(true).acquire().await.unwrap();
            sleep(Duration::from_mins(1)).await;
            guard.release().await.unwrap();
        });
    }
}

/// The runtime is alive but nobody drives it.
#[test]
fn a_hold_lasts_while_the_runtime_that_used_the_manager_first_idles() {
    let locks = LockManager::in_memory();
    let (idle, busy) = (runtime(), runtime());
    let short = |runtime: &Runtime| {
        runtime.block_on(async { locks.lock("p", "short").acquire().await.unwrap().release().await.unwrap() });
    };
    short(&idle);
    for _ in 0..2 {
        let body = async { locks.lock("p", "k").run(sleep(Duration::from_mins(1))).await };
        busy.block_on(body).unwrap();
        // The other runtime's keeper is not driven. It may be the last one that slept.
        short(&idle);
    }
}

#[test]
fn a_body_is_stopped_at_its_deadline_while_the_runtime_that_used_the_manager_first_idles() {
    let locks = LockManager::in_memory();
    let (idle, busy) = (runtime(), runtime());
    idle.block_on(async { locks.lock("p", "short").acquire().await.unwrap().release().await.unwrap() });
    busy.block_on(async {
        let start = Instant::now();
        let body = locks.lock("p", "k").expire(Duration::from_secs(4)).renew(false).run(sleep(Duration::from_mins(1)));
        assert!(body.await.unwrap_err().is_lost());
        assert!(start.elapsed() <= Duration::from_secs(4), "{:?}", start.elapsed());
    });
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_inside_of_a_body_waits_for_all_others_and_the_body_goes_on() {
    let locks = LockManager::in_memory();
    for drains in [true, false] {
        let locks = LockManager::builder().drain(Duration::from_secs(5)).in_memory();
        let length = Duration::from_secs(if drains { 2 } else { 60 });
        let other = tokio::spawn(locks.lock("p", "other").run(sleep(length)));
        tokio::task::yield_now().await;
        let start = Instant::now();
        let (inner, same) = (locks.clone(), locks.clone());
        let body = async move {
            inner.lock("p", "inner").run(async { same.shutdown().await }).await.unwrap();
            let refused = inner.lock("p", "more").acquire().await.unwrap_err();
            (start.elapsed(), refused)
        };
        let (took, refused) = locks.lock("p", "k").run(body).await.unwrap();
        assert_eq!(took, if drains { length } else { Duration::from_secs(5) });
        assert!(matches!(refused, LockError::ShutDown { .. }), "{refused:?}");
        assert_eq!(other.await.unwrap().is_ok(), drains);
        assert!(locks.core().table().all().is_empty());
    }
    // The shutdown of another manager does not concern the body.
    let other = LockManager::in_memory();
    locks.lock("p", "k").run(async { other.shutdown().await }).await.unwrap();
    locks.shutdown().await;
}

#[test]
fn with_its_manager_the_keeper_ends() {
    runtime().block_on(async {
        let locks = LockManager::in_memory();
        locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
        drop(locks);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    });
}
