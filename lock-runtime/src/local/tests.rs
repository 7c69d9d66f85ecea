#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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
            let _guard = locks
                .lock("p", "k")
                .fenced(i % 3 == 0)
                .timeout(Duration::from_secs(60))
                .acquire()
                .await
                .unwrap();
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
    let short = locks
        .lock("p", "k")
        .expire(Duration::from_secs(4))
        .acquire()
        .await
        .unwrap();
    let long = locks
        .lock("p", "l")
        .expire(Duration::from_secs(4))
        .renew(true)
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(short.is_valid());
    tokio::time::timeout(Duration::from_secs(2), short.lost())
        .await
        .unwrap();
    assert!(matches!(short.release().await, Err(LockError::Lost { .. })));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(long.is_valid());
    long.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_body_is_dropped() {
    let locks = LockManager::in_memory();
    let outcome = locks
        .lock("p", "k")
        .expire(Duration::from_secs(1))
        .run(tokio::time::sleep(Duration::from_secs(9)))
        .await;
    assert!(matches!(outcome, Err(LockError::Lost { completed: false, .. })));
    locks.lock("p", "k").try_acquire().await.unwrap().unwrap();
}

#[tokio::test]
async fn redis_smoke() {
    let Ok(url) = std::env::var("SMOKE_REDIS") else { return };
    let a = LockManager::connect(&url).await.unwrap();
    let b = LockManager::builder().url(&url).label("b").connect().await.unwrap();
    let guard = a.lock("p", "k").fenced(true).acquire().await.unwrap();
    let error = b
        .lock("p", "k")
        .timeout(Duration::from_millis(300))
        .acquire()
        .await
        .unwrap_err();
    println!("{error}");
    let waiter = {
        let b = b.clone();
        tokio::spawn(async move {
            b.lock("p", "k")
                .fenced(true)
                .timeout(Duration::from_secs(10))
                .acquire()
                .await
                .unwrap()
        })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("remaining {:?} {:?}", guard.remaining(), guard.fencing_token());
    let start = std::time::Instant::now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    println!(
        "handed off in {:?} {:?} {:?}",
        start.elapsed(),
        guard.remaining(),
        guard.fencing_token()
    );
    drop(guard);
    let start = std::time::Instant::now();
    let guard = a.lock("p", "k").acquire().await.unwrap();
    println!("dropped and acquired in {:?}", start.elapsed());
    guard.release().await.unwrap();
    for _ in 0..3 {
        let start = std::time::Instant::now();
        for _ in 0..1000 {
            a.lock("p", "z").acquire().await.unwrap().release().await.unwrap();
        }
        println!("pairs {:?}", start.elapsed() / 1000);
    }
    a.shutdown().await;
}
