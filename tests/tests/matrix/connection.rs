//! The server is well, but replies are lost, commands come late, and connections are cut, dead, or not understood.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::{Direction, Fault, Proxy};
use tests::server::Server;
use tokio::time::sleep;

use crate::{LATE, LONG, TIMEOUT, is_confirmed, is_had_soon, is_queued, manager, warm_up};

/// What happens to the reply or the connection of one command, and the lock is granted all the same.
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
    assert!(start.elapsed() < Duration::from_secs(3), "it waited for itself: {:?}", start.elapsed());
    assert!(guard.is_valid());
    // One lock, and nobody in a queue.
    let others = |key: &String| key.starts_with("{p:k}:queue");
    assert!(!server.keys().keys().any(others), "{:?}", server.keys());
    assert!(server.owner("p:k").is_some());
    is_confirmed(&guard, LONG).await;
    match guard.release().await {
        // The keeper asked again over its own connection, and was granted the lock. This one is found to be silent only now,
        // which takes all the time that a command has: the outcome is unknown, and the keeper releases the lock.
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
async fn row_05_an_acquire_that_arrives_after_its_timeout_blocks_nobody() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let slow = manager(&proxy.url()).await;
    let other = manager(&server.url()).await;
    warm_up(&[&slow, &other]).await;
    proxy.plan("SET", Fault::Hold);
    // The keeper's, which asks again by its own connection.
    proxy.plan("EVAL", Fault::Hold);
    proxy.plan("EVALSHA", Fault::Hold);
    let start = Instant::now();
    let error = slow.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    proxy.let_go();
    eventually("the late command arrives", Duration::from_secs(2), || proxy.holding() == 0).await;
    is_had_soon(&other).await.release().await.unwrap();
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
}

/// The keeper asks again, and is granted the lock: a task that hears of it in time has it. One that is polled too late for that is
/// told of the silence. Nobody else has the lock, so it is not busy.
#[tokio::test]
async fn a_single_try_whose_reply_is_lost_is_not_told_as_busy() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    let mut had = 0;
    for number in 0..3 {
        proxy.plan("SET", Fault::MuteFromReply);
        let tried = manager.lock("p", &number).try_acquire().await;
        assert!(!matches!(tried, Ok(None)), "try {number} is told as busy");
        assert!(proxy.is_through());
        had += u32::from(tried.is_ok());
        drop(tried);
        is_had_soon(&manager).await.release().await.unwrap();
    }
    assert!(had > 0, "no try had the lock that it was granted");
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
    is_had_soon(&other).await.release().await.unwrap();
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
        let guard = is_had_soon(&manager).await;
        let _ = guard.release().await;
    }
}

#[tokio::test]
async fn row_43_a_waiter_on_a_dead_connection_is_served_all_the_same() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let holder = manager(&server.url()).await;
    let deaf = manager(&proxy.url()).await;
    warm_up(&[&holder, &deaf]).await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { deaf.lock("p", "k").timeout(LONG).acquire().await });
    is_queued(&server).await;
    // The push will be swallowed, and nothing tells the client so.
    proxy.black_hole(Direction::ToClient);
    guard.release().await.unwrap();
    let released = Instant::now();
    let waited = waiter.await.unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
    // The grant may have come by the keeper's connection, while the dead one is not known to be dead yet: then this is
    // not answered, and repeated.
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
    is_queued(&server).await;
    // While the waiter reconnects, nobody listens on its channel.
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
async fn row_45_a_plain_client_at_a_tls_port_is_told_so_in_time() {
    let start = Instant::now();
    let error = LockManager::connect(&format!("redis://{}", tls_port())).await.unwrap_err();
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(2) + LATE + NOISE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn row_45_a_tls_client_at_a_plain_port_is_told_so_in_time() {
    let server = Server::start();
    let start = Instant::now();
    let error = LockManager::connect(&format!("rediss://{}", server.address())).await.unwrap_err();
    // Without the feature `tls` such a URL can't be read at all.
    assert!(matches!(error, LockError::Connect { .. } | LockError::InvalidSetting { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(2) + LATE + NOISE, "{:?}", start.elapsed());
}
