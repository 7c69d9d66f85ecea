//! A future that is dropped at any await point leaves nothing behind.

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, poll};
use lock_runtime::LockManager;
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::stores::World;
use tokio::time::sleep;

over_every_store![
    a_free_acquire,
    an_acquire_behind_a_task_of_the_process,
    an_acquire_that_is_just_being_served,
    a_waiter_in_the_middle_of_the_queue,
    a_run,
    a_release,
    an_extension,
    a_shutdown,
];

/// Polls `future` at most `times` times, each time that it wakes its task, then drops it.
async fn dropped_after<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polls = 0;
    std::future::poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last poll. The drop follows at once, not at the next wake-up.
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The lock is granted within the three seconds for which a cancelled request may block it, and is free afterwards.
async fn nothing_is_left(world: &World, managers: &[&LockManager], times: usize) {
    for manager in managers {
        let start = Instant::now();
        let next = manager.lock("p", "k").timeout(Duration::from_secs(5)).acquire().await;
        let next = next.unwrap_or_else(|error| panic!("after {times} polls: {error}"));
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(3) + NOISE, "after {times} polls: {waited:?}");
        assert!(next.is_valid());
        next.release().await.unwrap();
    }
    if let Some(server) = world.server_of("p:k") {
        eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    }
}

async fn a_free_acquire(world: World) {
    let manager = world.manager().await;
    let other = world.manager().await;
    for times in 0.. {
        let done = dropped_after(times, manager.lock("p", "k").acquire()).await;
        let was_done = done.is_some();
        drop(done);
        nothing_is_left(&world, &[&manager, &other], times).await;
        if was_done {
            return;
        }
    }
}

async fn an_acquire_behind_a_task_of_the_process(world: World) {
    let manager = world.manager().await;
    for times in 0.. {
        let holder = manager.lock("p", "k").acquire().await.unwrap();
        let request = manager.lock("p", "k").timeout(Duration::from_millis(50));
        let outcome = dropped_after(times, request.acquire()).await;
        assert!(holder.is_valid());
        holder.release().await.unwrap();
        nothing_is_left(&world, &[&manager], times).await;
        if let Some(outcome) = outcome {
            assert!(outcome.unwrap_err().is_timeout());
            return;
        }
    }
}

async fn an_acquire_that_is_just_being_served(world: World) {
    let manager = world.manager().await;
    let holder = manager.lock("p", "k").acquire().await.unwrap();
    let mut first = Box::pin(manager.lock("p", "k").timeout(Duration::from_secs(5)).acquire());
    let mut second = pin!(manager.lock("p", "k").timeout(Duration::from_secs(5)).acquire());
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(&mut second).is_pending());
    let start = Instant::now();
    // The hold is handed over to the first waiter, which never polls again.
    drop(holder);
    drop(first);
    second.await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    nothing_is_left(&world, &[&manager], 1).await;
}

async fn a_waiter_in_the_middle_of_the_queue(world: World) {
    let manager = world.manager().await;
    let holder = manager.lock("p", "k").acquire().await.unwrap();
    let mut waiters: Vec<_> =
        (0..5).map(|_| Box::pin(manager.lock("p", "k").timeout(Duration::from_secs(5)).acquire())).collect();
    for waiter in &mut waiters {
        assert!(poll!(waiter).is_pending());
    }
    drop(waiters.remove(2));
    drop(waiters.remove(0));
    drop(holder);
    let start = Instant::now();
    for waiter in waiters {
        waiter.await.unwrap().release().await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    nothing_is_left(&world, &[&manager], 1).await;
}

async fn a_run(world: World) {
    let manager = world.manager().await;
    for times in 0.. {
        let body = async {
            for _ in 0..3 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let outcome = dropped_after(times, manager.lock("p", "k").run(body)).await;
        nothing_is_left(&world, &[&manager], times).await;
        if let Some(outcome) = outcome {
            outcome.unwrap();
            return;
        }
    }
}

async fn a_release(world: World) {
    let manager = world.manager().await;
    let other = world.manager().await;
    for times in 0.. {
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        let outcome = dropped_after(times, guard.release()).await;
        nothing_is_left(&world, &[&manager, &other], times).await;
        if let Some(outcome) = outcome {
            outcome.unwrap();
            return;
        }
    }
}

async fn an_extension(world: World) {
    let manager = world.manager().await;
    for times in 0.. {
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        let outcome = dropped_after(times, guard.extend(Duration::from_secs(20))).await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        nothing_is_left(&world, &[&manager], times).await;
        if let Some(outcome) = outcome {
            outcome.unwrap();
            return;
        }
    }
}

async fn a_shutdown(world: World) {
    for times in 0.. {
        let manager = world.manager_with(LockManager::builder().drain(Duration::from_millis(20))).await;
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        let outcome = dropped_after(times, manager.shutdown()).await;
        // A second call continues the shutdown.
        manager.shutdown().await;
        assert!(!guard.is_valid());
        let next = world.manager().await;
        nothing_is_left(&world, &[&next], times).await;
        if outcome.is_some() {
            return;
        }
    }
}

#[tokio::test]
async fn an_acquire_behind_another_process() {
    let world = World::redis();
    let (north, south) = (world.manager().await, world.manager().await);
    for times in 0.. {
        let holder = north.lock("p", "k").acquire().await.unwrap();
        let request = south.lock("p", "k").timeout(Duration::from_millis(100));
        let outcome = dropped_after(times, request.acquire()).await;
        assert!(holder.is_valid());
        holder.release().await.unwrap();
        nothing_is_left(&world, &[&north, &south], times).await;
        if let Some(outcome) = outcome {
            assert!(outcome.unwrap_err().is_timeout());
            return;
        }
    }
}

#[tokio::test]
async fn an_acquire_that_another_process_is_handing_off_to() {
    let world = World::redis();
    let (north, south) = (world.manager().await, world.manager().await);
    for step in 0..40 {
        let holder = north.lock("p", "k").acquire().await.unwrap();
        let mut waiter = Box::pin(south.lock("p", "k").timeout(Duration::from_secs(5)).acquire());
        // Wait until it is in the server's queue.
        let granted = tokio::time::timeout(Duration::from_millis(10), &mut waiter).await;
        assert!(granted.is_err());
        let release = tokio::spawn(holder.release());
        let granted = tokio::time::timeout(Duration::from_micros(50 * step as u64), &mut waiter).await;
        drop(granted);
        drop(waiter);
        release.await.unwrap().unwrap();
        nothing_is_left(&world, &[&north, &south], step).await;
    }
}

#[tokio::test]
async fn a_withdrawn_waiter_leaves_no_place_in_the_queue() {
    let world = World::redis();
    let (north, south) = (world.manager().await, world.manager().await);
    let holder = north.lock("p", "k").acquire().await.unwrap();
    for _ in 0..50 {
        let mut waiter = Box::pin(south.lock("p", "k").timeout(Duration::from_secs(5)).acquire());
        let _ = tokio::time::timeout(Duration::from_millis(3), &mut waiter).await;
        assert!(waiter.now_or_never().is_none());
    }
    // Fifty dead entries of up to 3 s each would be noticed.
    let start = Instant::now();
    holder.release().await.unwrap();
    let next = south.lock("p", "k").timeout(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "{:?}", start.elapsed());
    next.release().await.unwrap();
}

/// Well below the 2.5 s after which a claim expires, and the 5 s after which a queue expires, so the test sees the withdrawal.
const WITHDRAWN: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_acquire_that_was_executed_and_dropped_is_withdrawn() {
    let world = World::redis();
    let manager = world.manager().await;
    let server = world.server_of("p:k").unwrap();
    let mut acquire = Box::pin(manager.lock("p", "k").acquire());
    assert!(poll!(&mut acquire).is_pending());
    eventually("the server has executed it", WITHDRAWN, || server.owner("p:k").is_some()).await;
    drop(acquire);
    eventually("the key is gone", WITHDRAWN, || server.owner("p:k").is_none()).await;
}

#[tokio::test]
async fn a_dropped_waiter_is_withdrawn_from_the_queue() {
    let world = World::redis();
    let (north, south) = (world.manager().await, world.manager().await);
    let server = world.server_of("p:k").unwrap();
    let holder = north.lock("p", "k").acquire().await.unwrap();
    let mut waiter = Box::pin(south.lock("p", "k").timeout(Duration::from_secs(5)).acquire());
    let in_queue = || server.ask::<usize>("ZCARD {p:k}:queue");
    while in_queue() == 0 {
        let _ = tokio::time::timeout(Duration::from_millis(3), &mut waiter).await;
    }
    drop(waiter);
    eventually("the queue is empty", WITHDRAWN, || in_queue() == 0).await;
    holder.release().await.unwrap();
}
