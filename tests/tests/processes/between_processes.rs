//! Locks between processes; to the protocol, two managers are two processes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::Proxy;
use tests::server::Server;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(20);

async fn manager(url: &str, label: &str) -> LockManager {
    LockManager::builder().url(url).label(label).connect().await.unwrap()
}

async fn two(server: &Server) -> (LockManager, LockManager) {
    (manager(&server.url(), "north").await, manager(&server.url(), "south").await)
}

/// Starts to wait for the lock `p:k` in a new task.
fn wait(manager: &LockManager) -> JoinHandle<(LockGuard, Instant)> {
    let manager = manager.clone();
    tokio::spawn(async move {
        let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        (guard, Instant::now())
    })
}

/// Waits until the client behind `proxy` is in the queue of `p:k`.
async fn wait_until_queued(proxy: &Proxy) {
    eventually("the waiter queues", Duration::from_secs(5), || {
        let work = proxy.work_since(0);
        work.iter().any(|words| words[0].starts_with("EVAL"))
    })
    .await;
    // Leave the server time to execute the ask.
    sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_lock_of_one_process_excludes_the_other() {
    let server = Server::start();
    let (north, south) = two(&server).await;
    for (holder, other, label) in [(&north, &south, "north"), (&south, &north, "south")] {
        let guard = holder.lock("p", "k").acquire().await.unwrap();
        assert!(other.lock("p", "k").try_acquire().await.unwrap().is_none());
        let error = other.lock("p", "k").timeout(Duration::from_millis(50)).acquire().await.unwrap_err();
        let LockError::Timeout { holder, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(holder.as_deref(), Some(label));
        guard.release().await.unwrap();
        let guard = other.lock("p", "k").try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn holds_of_two_processes_never_overlap_and_tokens_grow() {
    let server = Server::start();
    let (north, south) = two(&server).await;
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(Mutex::new(None));
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let manager = if number % 2 == 0 { north.clone() } else { south.clone() };
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            tokio::spawn(async move {
                for round in 0..40 {
                    let guard = manager.lock("p", "k").fenced(true).timeout(LONG).acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold the lock");
                    let token = guard.fencing_token();
                    let before = last.lock().unwrap().replace(token);
                    assert!(Some(token) > before, "{token:?} after {before:?}");
                    tokio::task::yield_now().await;
                    inside.store(false, Ordering::SeqCst);
                    if round % 2 == 0 {
                        drop(guard);
                    } else {
                        guard.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_release_hands_off_by_push() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let north = manager(&server.url(), "north").await;
    let south = manager(&proxy.url(), "south").await;
    // The first hold fills the script cache.
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let waiter = wait(&south);
    wait_until_queued(&proxy).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().0.release().await.unwrap();

    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let guard = north.lock("p", "k").acquire().await.unwrap();
        let earlier = proxy.count();
        let calls = server.commandstats();
        let waiter = wait(&south);
        sleep(Duration::from_millis(100)).await;
        let asked = proxy.work_since(earlier);
        assert!(asked.len() <= 2, "a waiter sends one try and one ask: {asked:?}");
        let publishes = server.commandstats().since(&calls).of("publish");
        let released = Instant::now();
        guard.release().await.unwrap();
        let (guard, granted) = waiter.await.unwrap();
        slowest = slowest.max(granted - released);
        let asked = proxy.work_since(earlier);
        let until_granted = asked.iter().filter(|words| words[0] == "SET").count();
        assert_eq!(until_granted, 1, "a try after the push: {asked:?}");
        assert!(server.commandstats().since(&calls).of("publish") > publishes, "handed off without a push");
        guard.release().await.unwrap();
    }
    // A waiter that polls would have waited for up to a second.
    assert!(slowest < Duration::from_millis(250), "{slowest:?}");
}

#[tokio::test]
async fn a_dropped_guard_hands_off_too() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let north = manager(&server.url(), "north").await;
    let south = manager(&proxy.url(), "south").await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let waiter = wait(&south);
    wait_until_queued(&proxy).await;
    let dropped = Instant::now();
    drop(guard);
    let (_guard, granted) = waiter.await.unwrap();
    assert!(granted - dropped < Duration::from_millis(250), "{:?}", granted - dropped);
}

#[tokio::test]
async fn a_busy_process_lets_a_foreign_waiter_pass() {
    let server = Server::start();
    let (north, south) = two(&server).await;
    let handed_over = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let locals: Vec<_> = (0..8)
        .map(|_| {
            let (north, handed_over, stop) = (north.clone(), Arc::clone(&handed_over), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let guard = north.lock("p", "k").timeout(LONG).acquire().await.unwrap();
                    handed_over.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(1)).await;
                    drop(guard);
                }
            })
        })
        .collect();
    eventually("the process hands over", Duration::from_secs(5), || handed_over.load(Ordering::SeqCst) > 20).await;
    for _ in 0..10 {
        let (before, start) = (handed_over.load(Ordering::SeqCst), Instant::now());
        let guard = south.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        let (passed, waited) = (handed_over.load(Ordering::SeqCst) - before, start.elapsed());
        // Once the process knows of the waiter, it hands over for one more streak: at most 64 times or 10 ms.
        assert!(passed <= 70, "passed over by {passed}");
        assert!(waited < Duration::from_millis(10) + NOISE, "{waited:?}");
        guard.release().await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::SeqCst);
    for local in locals {
        local.await.unwrap();
    }
}

/// Tasks of two processes contend for one lock for two seconds. Returns who got it when.
async fn grants_of_two_busy_processes(
    gives_back: fn(LockGuard) -> futures_util::future::BoxFuture<'static, ()>,
) -> Vec<(bool, Instant)> {
    let server = Server::start();
    let (north, south) = two(&server).await;
    let grants = Arc::new(Mutex::new(Vec::new()));
    let end = Instant::now() + Duration::from_secs(2);
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let is_north = number % 2 == 0;
            let manager = if is_north { north.clone() } else { south.clone() };
            let grants = Arc::clone(&grants);
            tokio::spawn(async move {
                while Instant::now() < end {
                    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
                    grants.lock().unwrap().push((is_north, Instant::now()));
                    sleep(Duration::from_millis(1)).await;
                    gives_back(guard).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    Arc::into_inner(grants).unwrap().into_inner().unwrap()
}

fn assert_both_get_their_share(grants: &[(bool, Instant)]) {
    let streaks: Vec<_> = grants.chunk_by(|one, next| one.0 == next.0).collect();
    let longest = streaks.iter().map(|streak| streak.len()).max().unwrap();
    let slowest = streaks.windows(2).map(|pair| pair[1][0].1 - pair[0][0].1).max().unwrap();
    let north = grants.iter().filter(|grant| grant.0).count();
    let south = grants.len() - north;
    let found = format!(
        "{north} grants against {south} in {} streaks; the longest had {longest}, the slowest took {slowest:?}",
        streaks.len()
    );
    // Each streak ends after 64 hand-overs or 10 ms, then the other process has its streak.
    assert!(longest <= 65 && slowest < Duration::from_millis(10) + NOISE, "{found}");
    assert!(north * 4 > south && south * 4 > north, "{found}");
    assert!(grants.len() > 200, "{found}");
}

#[tokio::test]
async fn two_busy_processes_that_release_share_a_lock() {
    let grants = grants_of_two_busy_processes(|guard| Box::pin(async { guard.release().await.unwrap() }));
    assert_both_get_their_share(&grants.await);
}

#[tokio::test]
async fn two_busy_processes_that_drop_share_a_lock() {
    let grants = grants_of_two_busy_processes(|guard| Box::pin(async { drop(guard) }));
    assert_both_get_their_share(&grants.await);
}

#[tokio::test]
async fn a_manager_on_a_unix_socket_locks_as_any_other() {
    let server = Server::on_socket();
    let (north, south) = two(&server).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let waiter = wait(&south);
    eventually("the waiter queues", LONG, || server.keys().contains_key("{p:k}:queue")).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    waiter.await.unwrap().0.release().await.unwrap();
}

#[tokio::test]
async fn one_process_with_many_keys_and_one_with_one_do_not_starve_each_other() {
    let server = Server::start();
    let (north, south) = two(&server).await;
    let guard = south.lock("p", "k").acquire().await.unwrap();
    let waiter = wait(&north);
    // While one task of `north` waits for `south`, its other tasks continue.
    let start = Instant::now();
    for key in 0..200 {
        let other = north.lock("q", &key).acquire().await.unwrap();
        other.release().await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    waiter.await.unwrap().0.release().await.unwrap();
}
