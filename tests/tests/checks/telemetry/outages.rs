//! The events about an outage: one for each change, not for each try.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::events::Events;
use tests::patience::eventually;
use tests::proxy::Proxy;
use tests::server::Server;

const BOUND: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_broken_connection_is_reported_when_it_is_back() {
    let events = Events::of_this_process();
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let locks = LockManager::builder().url(&proxy.url()).label("shop-1").connect().await.unwrap();
    let _guard = locks.lock("p", "k").acquire().await.unwrap();
    eventually("both connections", BOUND, || events.with(&["DEBUG", "message=connected"]).len() >= 2).await;
    assert!(events.with(&["connected again"]).is_empty());
    for outages in 1..=2 {
        proxy.cut();
        locks.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
        for connection in ["callers", "keeper"] {
            let words = ["INFO", "connected again", "label=\"shop-1\"", &format!("connection=\"{connection}\"")];
            eventually(connection, BOUND, || events.with(&words).len() == outages).await;
        }
    }
    let told = events.with(&["connected again"]);
    assert!(told.iter().all(|event| event.contains(&proxy.address()) && event.contains("away_ms=")), "{told:?}");
    assert_eq!(locks.stats().reconnects, 4);
}

#[tokio::test]
async fn only_the_changes_of_an_outage_are_reported() {
    let events = Events::of_this_process();
    let mut server = Server::start();
    let builder = LockManager::builder().url(&server.url()).command_timeout(Duration::from_millis(100));
    let locks = builder.connect().await.unwrap();
    let guards = [locks.lock("p", "a").acquire().await.unwrap(), locks.lock("p", "b").acquire().await.unwrap()];
    eventually("they are confirmed", BOUND, || locks.stats().renewals >= 2).await;
    server.kill();
    // The first command to fail is the release, or the check whether the server still has the lease.
    let failed = ["DEBUG", "background command failed", "command=", &format!("server=\"{}\"", server.address())];
    drop(guards);
    eventually("it fails", BOUND, || events.with(&failed).len() == 1).await;
    eventually("the releases wait", BOUND, || locks.stats().unreleased == 2).await;
    // The library repeats a release after at most a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(events.with(&["background command failed"]).len(), 1);
    let unreachable = events.with(&["DEBUG", "can't connect; trying on", "command=\"connect\""]);
    assert!((1..=2).contains(&unreachable.len()), "one for each connection: {unreachable:?}");
    server.restart();
    let works = ["DEBUG", "background commands work again", "command="];
    eventually("it works", BOUND, || events.with(&works).len() == 1).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_silent_and_answers_again() {
    let events = Events::of_this_process();
    let server = Server::start();
    let builder = LockManager::builder().url(&server.url()).command_timeout(Duration::from_millis(400));
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    // Then the keeper is connected: a greeting that meets the frozen server would be reported, too.
    eventually("it is confirmed", BOUND, || locks.stats().renewals >= 1).await;
    guard.release().await.unwrap();
    server.freeze();
    let tries = (0..3).map(|key| locks.lock("p", &key).timeout(Duration::ZERO).acquire());
    let outcomes = futures_util::future::join_all(tries).await;
    server.thaw();
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!(events.with(&["DEBUG", "the server is silent", "waited_ms=400"]).len(), 1);
    locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(events.with(&["DEBUG", "the server answers again"]).len(), 1);
}

#[tokio::test]
async fn a_renewal_that_is_refused_repeatedly_is_reported_once() {
    let events = Events::of_this_process();
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("p", "k").expire(Duration::from_secs(3)).acquire().await.unwrap();
    eventually("it is confirmed", BOUND, || locks.stats().renewals >= 1).await;
    server.tell("ACL SETUSER default -pexpire");
    let before = locks.stats().commands;
    guard.lost().await;
    assert!(locks.stats().commands >= before + 3, "the renewal was not repeated");
    let refused = ["WARN", "the server refused a background command", "key=\"p:k\"", "left_out=0"];
    assert_eq!(events.with(&refused).len(), 1);
    assert_eq!(events.with(&refused[..2]).len(), 1);
}
