//! The server or the network fails: what is reported, how soon, and what is left when it is well again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::{Direction, Fault, Proxy};
use tests::server::Server;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(300);
/// How late an answer may come that is promised for the timeout.
const LATE: Duration = Duration::from_millis(100);

async fn manager(url: &str) -> LockManager {
    LockManager::connect(url).await.unwrap()
}

/// Takes the lock and gives it back, so that the server knows every script.
async fn warm_up(managers: &[&LockManager]) {
    for manager in managers {
        manager.lock("warm", "up").acquire().await.unwrap().release().await.unwrap();
    }
}

async fn is_confirmed(guard: &LockGuard, at_least: Duration) {
    eventually("the lease is confirmed", Duration::from_secs(2), || guard.remaining() > at_least).await;
}

/// The lock can be had within the three seconds that a request given up may block it.
async fn is_had_soon(manager: &LockManager) -> LockGuard {
    let start = Instant::now();
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "{:?}", start.elapsed());
    guard
}

async fn fails_in_time(manager: &LockManager) {
    for timeout in [TIMEOUT, Duration::ZERO] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        let waited = start.elapsed();
        assert!(matches!(error, LockError::Backend { .. }), "{timeout:?}: {error:?}");
        assert!(error.to_string().contains("p:k"), "{error}");
        assert!(waited < timeout + LATE + NOISE, "{timeout:?}: {waited:?}");
    }
    let start = Instant::now();
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(start.elapsed() < LATE + NOISE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_frozen_server_is_reported_in_time_and_leaves_nothing_when_it_thaws() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    warm_up(&[&north]).await;
    server.freeze();
    fails_in_time(&north).await;
    server.thaw();
    // It now executes what was given up.
    is_had_soon(&south).await.release().await.unwrap();
    is_had_soon(&north).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

#[tokio::test]
async fn a_killed_server_is_reported_in_time_and_used_again_when_it_is_back() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    server.kill();
    fails_in_time(&manager).await;
    server.restart();
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_rides_out_a_restart() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    server.kill();
    let patient = tokio::spawn(async move { manager.lock("p", "k").timeout(LONG).acquire().await });
    sleep(Duration::from_millis(500)).await;
    server.restart();
    let restarted = Instant::now();
    let guard = patient.await.unwrap().unwrap();
    assert!(restarted.elapsed() < Duration::from_secs(2), "{:?}", restarted.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_rides_out_a_restart() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    sleep(Duration::from_millis(50)).await;
    server.kill();
    server.restart();
    // The lock survived, and its waiter waits on.
    assert!(server.owner("p:k").is_some());
    sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    assert!(guard.is_valid());
    let _ = guard.release().await;
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
}

#[tokio::test]
async fn a_restart_without_data_is_noticed_by_the_holder() {
    let mut server = Server::start();
    let north = manager(&server.url()).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    server.kill();
    server.restart();
    let restarted = Instant::now();
    // Half a minute's lease, verified at the reconnect.
    tokio::time::timeout(Duration::from_secs(3), guard.lost()).await.expect("the loss is noticed");
    assert!(restarted.elapsed() < Duration::from_secs(3));
    assert!(guard.release().await.is_err());
    let south = manager(&server.url()).await;
    let next = south.lock("p", "k").fenced(true).acquire().await.unwrap();
    let token = next.fencing_token();
    next.release().await.unwrap();
    server.tell("FLUSHALL");
    let after = south.lock("p", "k").fenced(true).acquire().await.unwrap();
    assert!(after.fencing_token() > token, "tokens restart with the data");
}

#[tokio::test]
async fn fencing_tokens_grow_over_a_restart_without_data() {
    let mut server = Server::start();
    let north = manager(&server.url()).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    let before = guard.fencing_token().unwrap();
    drop(guard);
    server.kill();
    server.restart();
    let south = manager(&server.url()).await;
    let guard = south.lock("p", "k").fenced(true).timeout(LONG).acquire().await.unwrap();
    assert!(guard.fencing_token().unwrap() > before);
}

#[tokio::test]
async fn a_hold_rides_out_a_freeze_shorter_than_its_lease() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let request = manager.lock("p", "k").expire(Duration::from_secs(3)).renew(true);
    let guard = request.acquire().await.unwrap();
    is_confirmed(&guard, Duration::from_millis(2700)).await;
    server.freeze();
    sleep(Duration::from_millis(1500)).await;
    server.thaw();
    sleep(Duration::from_millis(2500)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_body_is_stopped_at_its_deadline_while_the_server_is_frozen() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let lease = Duration::from_millis(800);
    let mut last = Instant::now();
    let mut frozen = Instant::now();
    let outcome: Result<(), _> = manager
        .lock("p", "k")
        .expire(lease)
        .renew(true)
        .run(async {
            sleep(Duration::from_millis(400)).await;
            server.freeze();
            frozen = Instant::now();
            loop {
                last = Instant::now();
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    let ended = frozen.elapsed();
    server.thaw();
    let error = outcome.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error:?}");
    // The last renewal was before the freeze.
    assert!(last - frozen <= lease, "a step {:?} after the freeze", last - frozen);
    assert!(ended < lease + LATE + NOISE, "{ended:?}");
    is_had_soon(&manager).await.release().await.unwrap();
}

/// What happens to the reply or the connection of one command, and the lock is granted all the same.
async fn an_acquire_meets(fault: Fault) {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    proxy.plan("SET", fault);
    let start = Instant::now();
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(proxy.is_through());
    assert!(start.elapsed() < Duration::from_secs(3), "it waited for itself: {:?}", start.elapsed());
    assert!(guard.is_valid());
    // One lock, and nobody in a queue.
    let others = |key: &String| key.starts_with("{p:k}:queue");
    assert!(!server.keys().keys().any(others), "{:?}", server.keys());
    assert!(server.owner("p:k").is_some());
    is_confirmed(&guard, LONG).await;
    guard.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.owner("p:k"), None, "a late ask took the lock again");
}

#[tokio::test]
async fn an_acquire_whose_reply_is_lost_is_granted_once() {
    an_acquire_meets(Fault::DropReply).await;
}

#[tokio::test]
async fn an_acquire_whose_connection_is_cut_before_the_reply_is_granted_once() {
    an_acquire_meets(Fault::CutAfterForward).await;
}

#[tokio::test]
async fn an_acquire_whose_connection_is_cut_before_it_is_sent_is_granted() {
    an_acquire_meets(Fault::CutBeforeForward).await;
}

async fn a_release_meets(fault: Fault) {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    proxy.plan("EVALSHA", fault);
    let start = Instant::now();
    if let Err(error) = guard.release().await {
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_has_released() {
    a_release_meets(Fault::DropReply).await;
}

#[tokio::test]
async fn a_release_whose_connection_is_cut_is_repeated() {
    a_release_meets(Fault::CutBeforeForward).await;
}

#[tokio::test]
async fn a_release_that_is_cut_before_the_reply_is_answered_for() {
    a_release_meets(Fault::CutAfterForward).await;
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_timeout_blocks_nobody() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let slow = manager(&proxy.url()).await;
    let other = manager(&server.url()).await;
    warm_up(&[&slow, &other]).await;
    proxy.plan("SET", Fault::Hold);
    let start = Instant::now();
    let error = slow.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    proxy.let_go();
    eventually("the late command arrives", Duration::from_secs(2), || proxy.holding() == 0).await;
    is_had_soon(&other).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

#[tokio::test]
async fn a_queued_ask_that_arrives_after_its_timeout_blocks_nobody() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let slow = manager(&proxy.url()).await;
    let other = manager(&server.url()).await;
    warm_up(&[&slow, &other]).await;
    let guard = other.lock("p", "k").acquire().await.unwrap();
    proxy.plan("EVALSHA", Fault::Hold);
    proxy.plan("EVAL", Fault::Hold);
    let start = Instant::now();
    slow.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    proxy.let_go();
    sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    is_had_soon(&other).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

#[tokio::test]
async fn a_black_holed_connection_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    for direction in [Direction::Both, Direction::ToServer, Direction::ToClient] {
        proxy.black_hole(direction);
        let guard = is_had_soon(&manager).await;
        let _ = guard.release().await;
    }
}

#[tokio::test]
async fn a_waiter_on_a_dead_connection_is_served_all_the_same() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let holder = manager(&server.url()).await;
    let deaf = manager(&proxy.url()).await;
    warm_up(&[&holder, &deaf]).await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { deaf.lock("p", "k").timeout(LONG).acquire().await });
    eventually("the waiter queues", Duration::from_secs(2), || server.keys().contains_key("{p:k}:queue")).await;
    // The push will be swallowed, and nothing tells the client so.
    proxy.black_hole(Direction::ToClient);
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
}

#[tokio::test]
async fn a_lost_push_costs_a_second() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let holder = manager(&server.url()).await;
    let cut = manager(&proxy.url()).await;
    warm_up(&[&holder, &cut]).await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { cut.lock("p", "k").timeout(LONG).acquire().await });
    eventually("the waiter queues", Duration::from_secs(2), || server.keys().contains_key("{p:k}:queue")).await;
    // While the waiter reconnects, nobody listens on its channel.
    proxy.cut();
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", released.elapsed());
}

/// Runs `nemesis` every so often while two processes of two tasks each want one lock; returns how often they got it.
async fn under_fire(server: &Server, pause: Duration, nemesis: impl Fn()) -> usize {
    let inside = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(3);
    let managers = [manager(&server.url()).await, manager(&server.url()).await];
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let manager = managers[number % 2].clone();
            let (inside, grants) = (Arc::clone(&inside), Arc::clone(&grants));
            tokio::spawn(async move {
                while Instant::now() < end {
                    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold the lock");
                    grants.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(1)).await;
                    assert!(guard.is_valid());
                    inside.store(false, Ordering::SeqCst);
                    match guard.release().await {
                        Ok(()) | Err(LockError::Backend { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    while Instant::now() < end {
        nemesis();
        sleep(pause).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    grants.load(Ordering::SeqCst)
}

#[tokio::test]
async fn scripts_may_be_flushed_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(2), || server.tell("SCRIPT FLUSH")).await;
    assert!(grants > 100, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn connections_may_be_killed_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(50), || {
        server.tell("CLIENT KILL TYPE normal");
        server.tell("CLIENT KILL TYPE pubsub");
    })
    .await;
    assert!(grants > 20, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn writes_may_be_paused_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(300), || {
        server.tell("CLIENT PAUSE 100 WRITE");
    })
    .await;
    assert!(grants > 20, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn a_flushed_server_is_noticed_by_the_next_renewal() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let lease = Duration::from_millis(900);
    let request = manager.lock("p", "k").expire(lease).renew(true);
    let guard = request.acquire().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    server.tell("FLUSHALL");
    let flushed = Instant::now();
    guard.lost().await;
    assert!(flushed.elapsed() < lease / 3 + LATE + NOISE, "{:?}", flushed.elapsed());
    assert!(!guard.is_valid());
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_body_is_stopped_when_an_admin_deletes_its_lock() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let lease = Duration::from_millis(900);
    let mut deleted = Instant::now();
    let outcome = manager
        .lock("p", "k")
        .expire(lease)
        .renew(true)
        .run(async {
            sleep(Duration::from_millis(50)).await;
            server.tell("DEL p:k");
            deleted = Instant::now();
            sleep(LONG).await;
        })
        .await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error:?}");
    assert!(deleted.elapsed() < lease / 3 + LATE + NOISE, "{:?}", deleted.elapsed());
}

#[tokio::test]
async fn a_waiter_gets_a_lock_that_an_admin_deletes() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    eventually("the waiter queues", Duration::from_secs(2), || server.keys().contains_key("{p:k}:queue")).await;
    server.tell("DEL p:k");
    let deleted = Instant::now();
    let next = waiter.await.unwrap().unwrap();
    assert!(deleted.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", deleted.elapsed());
    // The release of the one that lost it frees nobody's lock.
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(server.owner("p:k").is_some());
    assert!(next.is_valid());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_late_release_never_frees_the_lock_of_another() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let request = || north.lock("p", "k").expire(Duration::from_millis(100));
    let (one, two) = (request().acquire().await.unwrap(), south);
    one.lost().await;
    let next = two.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let token = server.owner("p:k");
    assert!(token.is_some());
    assert!(one.release().await.unwrap_err().is_lost());
    assert_eq!(server.owner("p:k"), token);
    next.release().await.unwrap();
    // The same with a dropped guard.
    let one = request().acquire().await.unwrap();
    one.lost().await;
    let next = two.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let token = server.owner("p:k");
    drop(one);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(server.owner("p:k"), token);
    assert!(next.is_valid());
}

#[tokio::test]
async fn a_foreign_value_without_an_end_is_respected_and_reported() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("SET p:k somebody");
    assert!(manager.lock("p", "k").try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    let error = manager.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    assert!(matches!(error, LockError::Timeout { .. } | LockError::Backend { .. }), "{error:?}");
    assert!(!error.to_string().contains("somebody"), "a foreign token is a secret, too: {error}");
    assert_eq!(server.owner("p:k").as_deref(), Some("somebody"));
    assert_eq!(server.ask::<i64>("PTTL p:k"), -1);
    server.tell("DEL p:k");
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn a_key_of_another_type_is_reported_and_left_alone() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("RPUSH p:k a b");
    for timeout in [Duration::ZERO, LONG] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        // Waiting would not make it a lock.
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    assert_eq!(server.ask::<Vec<String>>("LRANGE p:k 0 -1"), ["a", "b"]);
    // One bad key does not spoil the others.
    manager.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_is_not_a_busy_lock_and_still_releases() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    server.tell("CONFIG SET maxmemory 1000");
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains("OOM"), "{error}");
    // Waiting for it is either granted or refused, in time and without taking the lock for busy.
    let start = Instant::now();
    let outcome = manager.lock("p", "k").timeout(TIMEOUT).acquire().await;
    assert!(!outcome.is_err_and(|error| error.is_timeout()));
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    is_confirmed(&guard, LONG).await;
    guard.release().await.unwrap();
    assert_eq!(server.owner("p:held"), None);
    server.tell("CONFIG SET maxmemory 0");
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_reported_and_used_again_when_it_is_a_master() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("REPLICAOF 127.0.0.1 1");
    fails_in_time(&manager).await;
    server.tell("REPLICAOF NO ONE");
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn a_script_of_another_client_that_blocks_the_server_only_costs_time() {
    let server = Server::with(&["--busy-reply-threshold", "100"]);
    let manager = manager(&server.url()).await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let url = server.url();
    let blocker = std::thread::spawn(move || {
        let script = "local t = redis.call('TIME')[1] + 2 while redis.call('TIME')[1] + 0 < t do end";
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        // Its own reply may be an error on some versions; only its time counts.
        let _ = redis::cmd("EVAL").arg(script).arg(0).query::<redis::Value>(&mut connection);
    });
    sleep(Duration::from_millis(200)).await;
    let next = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    next.release().await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    blocker.join().unwrap();
}

#[tokio::test]
async fn a_user_without_the_right_to_scripts_is_told_so() {
    let server = Server::start();
    server.tell("ACL SETUSER poor on >canary-7f3a ~* &* -@all +set +get +ping +hello +info +client +subscribe");
    let url = server.url().replace("redis://", "redis://poor:canary-7f3a@");
    let start = Instant::now();
    let error = match LockManager::connect(&url).await {
        Err(error) => error,
        Ok(poor) => {
            let guard = poor.lock("p", "k").acquire().await.unwrap();
            guard.release().await.unwrap_err()
        }
    };
    assert!(start.elapsed() < Duration::from_secs(3));
    assert!(matches!(error, LockError::Backend { .. } | LockError::Connect { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn the_least_rights_that_the_docs_name_are_enough() {
    let server = Server::start();
    server.tell(
        "ACL SETUSER least on >secret ~* &cache_lock:* -@all +set +get +del +pexpire +pttl +exists +lrem +rpush +lpop \
         +lpos +time +publish +subscribe +unsubscribe +eval +evalsha +ping +hello",
    );
    let url = server.url().replace("redis://", "redis://least:secret@");
    let north = manager(&url).await;
    let south = manager(&url).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(500), "{:?}", released.elapsed());
}
