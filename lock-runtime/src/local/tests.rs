use std::time::Duration;

use crate::{LockError, LockManager};

#[tokio::test(start_paused = true)]
async fn a_released_lock_is_free_and_forgotten() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    assert!(locks.lock("p", "k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = locks.lock("p", "k").try_acquire().await.unwrap().unwrap();
    drop(guard);
    assert!(locks.engine().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let locks = LockManager::in_memory();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for i in 0..50 {
        let (locks, order) = (locks.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let _guard =
                locks.lock("p", "k").fenced(i % 3 == 0).timeout(Duration::from_mins(1)).acquire().await.unwrap();
            order.lock().unwrap().push(i);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }));
        tokio::task::yield_now().await;
    }
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    assert!(locks.engine().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hold_without_renewal_ends_and_one_with_it_lasts() {
    let locks = LockManager::in_memory();
    let short = locks.lock("p", "k").expire(Duration::from_secs(4)).acquire().await.unwrap();
    let long = locks.lock("p", "l").expire(Duration::from_secs(4)).renew(true).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(short.is_valid());
    tokio::time::timeout(Duration::from_secs(2), short.lost()).await.unwrap();
    assert!(matches!(short.release().await, Err(LockError::Lost { .. })));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(long.is_valid());
    long.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_body_is_dropped() {
    let locks = LockManager::in_memory();
    let outcome =
        locks.lock("p", "k").expire(Duration::from_secs(1)).run(tokio::time::sleep(Duration::from_secs(9))).await;
    assert!(matches!(outcome, Err(LockError::Lost { completed: false, .. })));
    assert!(locks.lock("p", "k").try_acquire().await.unwrap().is_some());
}
