//! Bodies under a lock: what happens to them and their values when the hold lasts, and when it is lost.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::poll;
use lock_runtime::{LockError, LockManager, OnLost};
use tests::over_every_store;
use tests::patience::NOISE;
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{Dropped, LONG, SHORT};

over_every_store![
    a_body_runs_and_its_value_is_returned,
    a_lost_body_is_never_polled_again,
    a_lost_body_is_dropped_before_the_next_holder_enters,
    a_body_that_may_continue_runs_to_its_end,
    a_body_that_ends_too_late_says_so,
];

async fn a_body_runs_and_its_value_is_returned(world: World) {
    let manager = world.manager().await;
    let value = manager
        .lock("p", &("a", 7))
        .run(async {
            sleep(Duration::from_millis(5)).await;
            !is_free_pair(&manager).await
        })
        .await;
    assert!(value.unwrap(), "the lock was free during the body");
    assert!(is_free_pair(&manager).await);
}

async fn is_free_pair(manager: &LockManager) -> bool {
    let manager = manager.clone();
    // In another task, because the body's own task would enter the lock again.
    let tried = tokio::spawn(async move { manager.lock("p", &("a", 7)).try_acquire().await });
    tried.await.unwrap().unwrap().is_some()
}

async fn a_lost_body_is_never_polled_again(world: World) {
    let manager = world.manager().await;
    let steps: Mutex<Vec<Instant>> = Mutex::default();
    let start = Instant::now();
    let error = manager
        .lock("p", "k")
        .expire(SHORT)
        .renew(false)
        .run(async {
            loop {
                steps.lock().unwrap().push(Instant::now());
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error:?}");
    assert!(start.elapsed() < SHORT + NOISE);
    let steps = steps.into_inner().unwrap();
    // The lease began before the first step, and a step reads the clock a little after its poll began.
    let lasted = steps.last().unwrap().duration_since(steps[0]);
    assert!(steps.len() > 5 && lasted <= SHORT + Duration::from_millis(2), "{lasted:?} in {} steps", steps.len());
}

async fn a_lost_body_is_dropped_before_the_next_holder_enters(world: World) {
    let manager = world.manager().await;
    let gone = Arc::new(AtomicBool::new(false));
    let body = Dropped(Arc::clone(&gone));
    let lost = manager.lock("p", "k").expire(SHORT).renew(false).run(async move {
        let _body = body;
        std::future::pending::<()>().await;
    });
    let mut lost = pin!(lost);
    assert!(poll!(&mut lost).is_pending());
    let next = async {
        // Polled second, so it is second in this process's queue.
        let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        assert!(gone.load(Ordering::SeqCst), "the lost body still exists");
        guard.release().await.unwrap();
    };
    let (lost, ()) = tokio::join!(lost, next);
    assert!(lost.unwrap_err().is_lost());
}

async fn a_body_that_may_continue_runs_to_its_end(world: World) {
    let manager = world.manager().await;
    let ended = AtomicBool::new(false);
    let error = manager
        .lock("p", "k")
        .expire(Duration::from_millis(100))
        .renew(false)
        .on_lost(OnLost::Continue)
        .run(async {
            sleep(SHORT).await;
            ended.store(true, Ordering::SeqCst);
        })
        .await
        .unwrap_err();
    assert!(ended.into_inner());
    assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error:?}");
}

async fn a_body_that_ends_too_late_says_so(world: World) {
    let manager = world.manager().await;
    let error = manager
        .lock("p", "k")
        .expire(Duration::from_millis(50))
        .renew(false)
        .run(async {
            // One step that blocks its thread for longer than the lease; nothing can stop it.
            std::thread::sleep(Duration::from_millis(120));
        })
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error:?}");
    assert!(error.to_string().contains("before it was released"));
}
