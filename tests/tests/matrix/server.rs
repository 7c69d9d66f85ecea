//! The server hangs, dies, restarts, or is busy with something else.

use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::patience::{NOISE, eventually};
use tests::server::Server;
use tokio::time::sleep;

use crate::crowd::Crowd;
use crate::{
    LATE, LONG, assert_fails_in_time, assert_granted_soon, manager, occupy, wait_until_confirmed, wait_until_queued,
    warm_up,
};

#[tokio::test]
async fn row_02_a_frozen_server_is_reported_in_time_and_leaves_nothing_when_it_thaws() {
    let server = Server::start();
    let crowd = Crowd::on(&server.url()).await;
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    warm_up(&[&north]).await;
    server.freeze();
    assert_fails_in_time(&north).await;
    server.thaw();
    // The server now executes the abandoned commands.
    assert_granted_soon(&south).await.release().await.unwrap();
    assert_granted_soon(&north).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    crowd.ends_well(&server).await;
}

#[tokio::test]
async fn row_02_a_frozen_server_is_not_a_busy_lock_to_tasks_that_leave_the_asking_to_another() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    server.freeze();
    for timeout in [Duration::from_millis(300), Duration::from_millis(1500)] {
        let acquire = || manager.lock("p", "k").timeout(timeout).acquire();
        let start = Instant::now();
        let outcomes = tokio::join!(acquire(), acquire(), acquire());
        assert!(start.elapsed() < timeout + LATE + NOISE, "{timeout:?}: {:?}", start.elapsed());
        for outcome in [outcomes.0, outcomes.1, outcomes.2] {
            assert!(matches!(outcome, Err(LockError::Backend { .. })), "{timeout:?}: {outcome:?}");
        }
    }
    server.thaw();
}

#[tokio::test]
async fn a_lock_is_reported_busy_again_when_the_server_answers_again() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    warm_up(&[&north, &south]).await;
    let _held = north.lock("p", "k").acquire().await.unwrap();
    server.freeze();
    let short = south.lock("p", "k").timeout(Duration::from_millis(300)).acquire();
    let long = south.lock("p", "k").timeout(Duration::from_secs(4)).acquire();
    let single = async {
        sleep(Duration::from_millis(500)).await;
        server.thaw();
        sleep(Duration::from_millis(1500)).await;
        south.lock("p", "k").try_acquire().await
    };
    let (short, long, single) = tokio::join!(short, long, single);
    assert!(matches!(short, Err(LockError::Backend { .. })), "{short:?}");
    assert!(matches!(single, Ok(None)), "{single:?}");
    assert!(matches!(long, Err(LockError::Timeout { holder: Some(_), .. })), "{long:?}");
}

#[tokio::test]
async fn row_07_a_killed_server_is_reported_in_time_and_used_again_when_it_is_back() {
    let mut server = Server::start();
    let manager = manager(&server.url()).await;
    server.kill();
    assert_fails_in_time(&manager).await;
    server.restart();
    assert_granted_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn row_07_an_acquire_waits_on_while_the_server_is_down() {
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
async fn row_09_a_lock_and_its_waiter_survive_a_restart_with_the_data() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let crowd = Crowd::on(&server.url()).await;
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    let lease = Duration::from_millis(1500);
    let renewed = north.lock("p", "renewed").expire(lease).renew(true).acquire().await.unwrap();
    wait_until_confirmed(&renewed, Duration::from_secs(1)).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    wait_until_queued(&server).await;
    server.kill();
    server.restart();
    // The lock survived, and its waiter still waits.
    assert!(server.owner("p:k").is_some());
    sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    assert!(guard.is_valid());
    let _ = guard.release().await;
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    sleep(lease).await;
    assert!(renewed.is_valid());
    renewed.release().await.unwrap();
    crowd.ends_well(&server).await;
}

#[tokio::test]
async fn row_08_a_restart_without_data_is_noticed_by_the_holder() {
    let mut server = Server::start();
    let north = manager(&server.url()).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    server.kill();
    server.restart();
    let restarted = Instant::now();
    // The lease is half a minute long, but the reconnect verifies it.
    tokio::time::timeout(Duration::from_secs(3), guard.lost()).await.expect("the loss is noticed");
    assert!(restarted.elapsed() < Duration::from_secs(3));
    assert!(guard.release().await.is_err());
    let south = manager(&server.url()).await;
    let next = south.lock("p", "k").fenced(true).acquire().await.unwrap();
    let token = next.fencing_token();
    next.release().await.unwrap();
    server.tell("FLUSHALL");
    let after = south.lock("p", "k").fenced(true).acquire().await.unwrap();
    assert!(after.fencing_token() > token, "tokens must not restart with the data");
}

#[tokio::test]
async fn row_08_fencing_tokens_grow_over_a_restart_without_data() {
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
async fn row_01_a_freeze_shorter_than_the_lease_costs_time_and_no_hold() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let request = manager.lock("p", "k").expire(Duration::from_secs(3)).renew(true);
    let guard = request.acquire().await.unwrap();
    wait_until_confirmed(&guard, Duration::from_millis(2700)).await;
    let crowd = Crowd::on(&server.url()).await;
    server.freeze();
    let asking = tokio::spawn(manager.lock("p", "other").timeout(LONG).acquire());
    sleep(Duration::from_millis(1500)).await;
    assert!(!asking.is_finished());
    server.thaw();
    asking.await.unwrap().unwrap().release().await.unwrap();
    sleep(Duration::from_millis(2500)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_eq!(crowd.ends_well(&server).await.refusals, 0);
}

#[tokio::test]
async fn row_02_a_body_is_stopped_at_its_deadline_while_the_server_is_frozen() {
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
    assert_granted_soon(&manager).await.release().await.unwrap();
}

/// A command keeps the whole server busy.
async fn a_server_is_busy_with(server: &Server, command: &[&str]) {
    let manager = manager(&server.url()).await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    let crowd = Crowd::on(&server.url()).await;
    let occupied = occupy(server, command);
    sleep(Duration::from_millis(200)).await;
    let next = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    next.release().await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_eq!(crowd.ends_well(server).await.refusals, 0);
    occupied.join().unwrap();
}

#[tokio::test]
async fn row_14_a_script_of_another_client_that_blocks_the_server_only_costs_time() {
    let server = Server::with(&["--busy-reply-threshold", "100"]);
    let script = "local t = redis.call('TIME')[1] + 2 while redis.call('TIME')[1] + 0 < t do end";
    a_server_is_busy_with(&server, &["EVAL", script, "0"]).await;
}

#[tokio::test]
async fn row_15_a_server_that_sleeps_only_costs_time() {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    a_server_is_busy_with(&server, &["DEBUG", "SLEEP", "1"]).await;
}

#[tokio::test]
async fn row_10_a_server_that_is_loading_its_data_is_reported_and_only_costs_time() {
    // Loading 500 keys takes two seconds, during which the server answers after every kilobyte.
    let mut options = vec!["--enable-debug-command", "yes", "--rdbcompression", "no", "--key-load-delay", "4000"];
    options.extend(["--loading-process-events-interval-bytes", "1024"]);
    let mut server = Server::with(&options);
    let manager = manager(&server.url()).await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    server.tell("DEBUG POPULATE 500 filler 1000");
    server.tell("SAVE");
    server.kill();
    server.restart_unready();
    eventually("it loads", LONG, || server.is_loading()).await;
    let waiting = tokio::spawn(manager.lock("p", "other").timeout(LONG).acquire());
    assert_fails_in_time(&manager).await;
    assert!(server.is_loading(), "it had loaded its data before the test asked");
    eventually("it is ready", LONG, || !server.is_loading()).await;
    let ready = Instant::now();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(ready.elapsed() < Duration::from_secs(2), "{:?}", ready.elapsed());
    assert_granted_soon(&manager).await.release().await.unwrap();
    // The lock was saved, so its holder still has it.
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}
