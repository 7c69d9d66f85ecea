//! The server hangs, dies, restarts, or is busy with something else.

use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::patience::{NOISE, eventually};
use tests::server::Server;
use tokio::time::sleep;

use crate::{LATE, LONG, fails_in_time, is_confirmed, is_had_soon, manager, warm_up};

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
async fn a_frozen_server_is_not_a_busy_lock_to_tasks_that_leave_the_asking_to_another() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    server.freeze();
    for timeout in [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(1500)] {
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
async fn a_server_that_answers_again_is_called_busy_again() {
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
