//! What an administrator may do to a server in use: flush, kill, pause, limit, evict, demote.

use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::patience::{NOISE, eventually, eventually_blocking};
use tests::server::Server;
use tokio::time::sleep;

use crate::crowd::Crowd;
use crate::{
    LATE, LONG, TIMEOUT, assert_fails_in_time, assert_granted_soon, manager, wait_until_confirmed, wait_until_lost,
    wait_until_queued, warm_up,
};

/// Calls `nemesis` again and again while a crowd contends for one lock. Every request must be granted.
async fn under_fire(server: &Server, pause: Duration, nemesis: impl Fn(usize)) -> usize {
    let crowd = Crowd::on(&server.url()).await;
    let end = Instant::now() + Duration::from_secs(3);
    for round in 0.. {
        if Instant::now() >= end {
            break;
        }
        nemesis(round);
        sleep(pause).await;
    }
    let got = crowd.ends_well(server).await;
    assert_eq!(got.refusals, 0);
    got.grants
}

#[tokio::test]
async fn row_11_connections_may_be_killed_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(50), |_| {
        server.tell("CLIENT KILL TYPE normal");
        server.tell("CLIENT KILL TYPE pubsub");
    })
    .await;
    assert!(grants > 20, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn row_12_commands_may_be_paused_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(300), |round| {
        let kind = if round % 2 == 0 { "WRITE" } else { "ALL" };
        server.tell(&format!("CLIENT PAUSE 100 {kind}"));
    })
    .await;
    assert!(grants > 20, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn row_12_an_acquire_that_a_pause_delays_past_its_timeout_blocks_nobody() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    warm_up(&[&north, &south]).await;
    let held = north.lock("p", "held").acquire().await.unwrap();
    wait_until_confirmed(&held, LONG).await;
    server.tell("CLIENT PAUSE 1500 WRITE");
    assert_fails_in_time(&north).await;
    sleep(Duration::from_millis(1500)).await;
    // By now the server has executed the request that was given up.
    assert_granted_soon(&south).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    assert!(held.is_valid());
    held.release().await.unwrap();
}

#[tokio::test]
async fn row_13_scripts_may_be_flushed_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(2), |_| server.tell("SCRIPT FLUSH")).await;
    assert!(grants > 100, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn row_17_an_evicted_lock_is_noticed_by_the_next_renewal() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    assert_noticed_by_the_next_renewal(&server, || {
        server.tell("CONFIG SET maxmemory 1000");
        eventually_blocking("everything is evicted", LONG, || server.ask::<usize>("DBSIZE") == 0);
        server.tell("CONFIG SET maxmemory 0");
    })
    .await;
}

#[tokio::test]
async fn row_18_a_flushed_server_is_noticed_by_the_next_renewal() {
    let server = Server::start();
    assert_noticed_by_the_next_renewal(&server, || server.tell("FLUSHALL")).await;
}

/// The server forgets a lock that is held and renewed: its holder learns of the loss, and the next fencing token is greater.
async fn assert_noticed_by_the_next_renewal(server: &Server, forget: impl FnOnce()) {
    let north = manager(&server.url()).await;
    let lease = Duration::from_millis(900);
    let request = north.lock("p", "k").expire(lease).renew(true).fenced(true);
    let guard = request.acquire().await.unwrap();
    let waiting = tokio::spawn(north.lock("p", "k").timeout(LONG).fenced(true).acquire());
    sleep(Duration::from_millis(100)).await;
    forget();
    let forgotten = Instant::now();
    wait_until_lost(&guard).await;
    assert!(forgotten.elapsed() < lease / 3 + LATE + NOISE, "{:?}", forgotten.elapsed());
    assert!(!guard.is_valid());
    let fence = guard.fencing_token();
    assert!(guard.release().await.unwrap_err().is_lost());
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fencing_token() > fence, "{:?} after {fence:?}", next.fencing_token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn row_19_a_body_is_stopped_when_an_admin_deletes_its_lock() {
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
async fn row_19_a_waiter_gets_a_lock_that_an_admin_deletes() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    wait_until_queued(&server).await;
    server.tell("DEL p:k");
    let deleted = Instant::now();
    let next = waiter.await.unwrap().unwrap();
    assert!(deleted.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", deleted.elapsed());
    // The release of the old hold must not free the new one.
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(server.owner("p:k").is_some());
    assert!(next.is_valid());
    next.release().await.unwrap();
}

#[tokio::test]
async fn row_16_a_full_server_is_not_a_busy_lock_and_still_renews_and_releases() {
    let server = Server::start();
    let crowd = Crowd::on(&server.url()).await;
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    let renewed = manager.lock("p", "renewed").expire(Duration::from_millis(600)).renew(true).acquire().await.unwrap();
    server.tell("CONFIG SET maxmemory 1000");
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains("OOM"), "{error}");
    // A waiting request is granted or refused in time, and the lock never looks busy.
    let start = Instant::now();
    let outcome = manager.lock("p", "k").timeout(TIMEOUT).acquire().await;
    assert!(!outcome.is_err_and(|error| error.is_timeout()));
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    wait_until_confirmed(&guard, LONG).await;
    guard.release().await.unwrap();
    assert_eq!(server.owner("p:held"), None);
    sleep(Duration::from_secs(1)).await;
    assert!(renewed.is_valid());
    server.tell("CONFIG SET maxmemory 0");
    assert_granted_soon(&manager).await.release().await.unwrap();
    crowd.ends_well(&server).await;
}

/// While the server refuses writes, no lock looks busy and no hold outlives its deadline. When the server accepts writes
/// again, locks that were released meanwhile are soon free.
async fn writes_are_refused(server: &Server, says: &str, refuse: impl FnOnce(), heal: impl FnOnce()) {
    let crowd = Crowd::on(&server.url()).await;
    let manager = manager(&server.url()).await;
    let acquire = |key: &'static str| manager.lock("p", key).acquire();
    let (kept, released) = (acquire("kept").await.unwrap(), acquire("released").await.unwrap());
    let dropped = acquire("dropped").await.unwrap();
    let short = manager.lock("p", "short").expire(Duration::from_millis(1500)).renew(true).acquire().await.unwrap();
    for guard in [&kept, &released, &dropped] {
        wait_until_confirmed(guard, LONG).await;
    }
    refuse();
    assert_fails_in_time(&manager).await;
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
    let error = released.release().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    drop(dropped);
    let start = Instant::now();
    wait_until_lost(&short).await;
    assert!(start.elapsed() < Duration::from_millis(1500) + LATE + NOISE, "{:?}", start.elapsed());
    assert!(kept.is_valid());
    let are_there = |keys: &[&str]| keys.iter().any(|key| server.owner(key).is_some());
    assert!(are_there(&["p:released"]) && are_there(&["p:dropped"]));
    heal();
    eventually("the released locks are free", Duration::from_secs(3), || !are_there(&["p:released", "p:dropped"]))
        .await;
    assert_granted_soon(&manager).await.release().await.unwrap();
    assert!(kept.is_valid());
    kept.release().await.unwrap();
    crowd.ends_well(server).await;
}

#[tokio::test]
async fn row_21_a_server_that_became_a_replica_is_reported_and_used_again_when_it_is_a_master() {
    let server = Server::start();
    let demote = || server.tell("REPLICAOF 127.0.0.1 1");
    writes_are_refused(&server, "read only replica", demote, || server.tell("REPLICAOF NO ONE")).await;
}

#[tokio::test]
async fn row_24_a_server_that_lost_its_replicas_is_reported_and_gets_the_releases_when_it_has_them_again() {
    let server = Server::start();
    let demand = |count: u32| server.tell(&format!("CONFIG SET min-replicas-to-write {count}"));
    writes_are_refused(&server, "NOREPLICAS", || demand(1), || demand(0)).await;
}

#[tokio::test]
async fn row_25_a_server_that_cannot_save_is_reported_and_gets_the_releases_when_it_can_again() {
    // Disable the save at exit: a server that can't save would not exit when the test runner terminates a hung test.
    let server = Server::with(&["--save", "3600 1", "--shutdown-on-sigterm", "nosave"]);
    let in_the_way = server.folder().join("dump.rdb");
    let save = |outcome: &str| {
        server.tell("BGSAVE");
        let status = format!("rdb_last_bgsave_status:{outcome}");
        eventually_blocking("the save ends", LONG, || server.ask::<String>("INFO persistence").contains(&status));
    };
    let refuse = || {
        std::fs::create_dir_all(in_the_way.join("full")).unwrap();
        save("err");
    };
    let heal = || {
        std::fs::remove_dir_all(&in_the_way).unwrap();
        save("ok");
    };
    writes_are_refused(&server, "MISCONF", refuse, heal).await;
}
