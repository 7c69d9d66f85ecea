//! The server works, but replies are lost, commands are late, and connections are cut, dead, or speak another protocol.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::{Direction, Fault, Proxy};
use tests::server::Server;
use tokio::time::sleep;

use crate::{LATE, LONG, TIMEOUT, assert_granted_soon, manager, wait_until_confirmed, wait_until_queued, warm_up};

/// A fault hits the command of an acquire; the lock is granted anyway.
async fn an_acquire_meets(fault: Fault) {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    let may_stay_silent = matches!(fault, Fault::DropReply);
    proxy.plan("SET", fault);
    let start = Instant::now();
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(proxy.is_through());
    assert!(start.elapsed() < Duration::from_secs(3), "it waited for its own claim: {:?}", start.elapsed());
    assert!(guard.is_valid());
    // Exactly one lock, and an empty queue.
    let others = |key: &String| key.starts_with("{p:k}:queue");
    assert!(!server.keys().keys().any(others), "{:?}", server.keys());
    assert!(server.owner("p:k").is_some());
    wait_until_confirmed(&guard, LONG).await;
    match guard.release().await {
        // The keeper got the lock with an ask over its own connection. The tasks' connection turns out to be silent only now, when
        // the release times out: its outcome is unknown, and the keeper repeats the release.
        Err(LockError::Backend { .. }) if may_stay_silent => {}
        released => released.unwrap(),
    }
    eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.owner("p:k"), None, "a late ask took the lock again");
}

#[tokio::test]
async fn row_03_an_acquire_whose_reply_is_lost_is_granted_once() {
    an_acquire_meets(Fault::DropReply).await;
}

#[tokio::test]
async fn row_04_an_acquire_whose_connection_is_cut_before_the_reply_is_granted_once() {
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
    wait_until_confirmed(&guard, LONG).await;
    proxy.plan("EVALSHA", fault);
    let start = Instant::now();
    if let Err(error) = guard.release().await {
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    assert_granted_soon(&manager).await.release().await.unwrap();
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
async fn a_release_whose_connection_is_cut_before_the_reply_is_repeated() {
    a_release_meets(Fault::CutAfterForward).await;
}

#[tokio::test]
async fn row_05_an_acquire_that_arrives_after_its_timeout_blocks_nobody() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let slow = manager(&proxy.url()).await;
    let other = manager(&server.url()).await;
    warm_up(&[&slow, &other]).await;
    proxy.plan("SET", Fault::Hold);
    // Also hold the asks of the keeper, which it sends over its own connection.
    proxy.plan("EVAL", Fault::Hold);
    proxy.plan("EVALSHA", Fault::Hold);
    let start = Instant::now();
    let error = slow.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    proxy.let_go();
    eventually("the late command arrives", Duration::from_secs(2), || proxy.holding() == 0).await;
    assert_granted_soon(&other).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

/// The keeper asks again, and is granted the lock. A task that is polled in time gets it; a task that is polled too late gets an error
/// about the silent server. The lock is free, so no try may report it as busy.
#[tokio::test]
async fn a_single_try_whose_reply_is_lost_is_not_reported_as_busy() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    let mut had = 0;
    for number in 0..3 {
        proxy.plan("SET", Fault::MuteFromReply);
        let tried = manager.lock("p", &number).try_acquire().await;
        assert!(!matches!(tried, Ok(None)), "try {number} reports a busy lock");
        assert!(proxy.is_through());
        had += u32::from(tried.is_ok());
        drop(tried);
        // The keeper may also ask for this lock while the tasks' connection is still mute. Then the reply to the release is lost.
        let _ = assert_granted_soon(&manager).await.release().await;
        eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    }
    assert!(had > 0, "no try got the lock");
}

#[tokio::test]
async fn row_05_a_queued_ask_that_arrives_after_its_timeout_blocks_nobody() {
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
    assert_granted_soon(&other).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

#[tokio::test]
async fn row_06_a_black_holed_connection_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    for direction in [Direction::Both, Direction::ToServer, Direction::ToClient] {
        proxy.black_hole(direction);
        let guard = assert_granted_soon(&manager).await;
        let _ = guard.release().await;
    }
}

#[tokio::test]
async fn row_43_a_waiter_on_a_dead_connection_is_served_anyway() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let holder = manager(&server.url()).await;
    let deaf = manager(&proxy.url()).await;
    warm_up(&[&holder, &deaf]).await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { deaf.lock("p", "k").timeout(LONG).acquire().await });
    wait_until_queued(&server).await;
    // The push will be swallowed, and the client can't notice.
    proxy.black_hole(Direction::ToClient);
    guard.release().await.unwrap();
    let released = Instant::now();
    let waited = waiter.await.unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
    // The grant may have arrived over the keeper's connection before the client knew that the other one is dead. Then this
    // release gets no reply, and is repeated.
    let _ = waited.release().await;
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

#[tokio::test]
async fn row_43_a_cut_before_the_push_costs_a_second() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let holder = manager(&server.url()).await;
    let cut = manager(&proxy.url()).await;
    warm_up(&[&holder, &cut]).await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { cut.lock("p", "k").timeout(LONG).acquire().await });
    wait_until_queued(&server).await;
    // While the waiter reconnects, its channel has no subscriber.
    proxy.cut();
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", released.elapsed());
}

/// A server that speaks TLS answers a plain client with an alert, and ends the connection.
fn tls_port() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 64]);
            // alert, TLS 1.2, 2 bytes: fatal, unexpected message
            let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 10]);
        }
    });
    address
}

#[tokio::test]
async fn row_45_a_plain_client_at_a_tls_port_gets_a_clear_error_in_time() {
    let start = Instant::now();
    let error = LockManager::connect(&format!("redis://{}", tls_port())).await.unwrap_err();
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(2) + LATE + NOISE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn row_45_a_tls_client_at_a_plain_port_gets_a_clear_error_in_time() {
    let server = Server::start();
    let start = Instant::now();
    let error = LockManager::connect(&format!("rediss://{}", server.address())).await.unwrap_err();
    // Without the feature `tls` such a URL can't be read at all.
    assert!(matches!(error, LockError::Connect { .. } | LockError::InvalidSetting { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(2) + LATE + NOISE, "{:?}", start.elapsed());
}
