//! A server whose memory policy may evict locks.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::events::Events;
use tests::patience::eventually;
use tests::server::Server;

use crate::manager;

const SOON: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_server_that_evicts_is_warned_of_once_with_the_policy_and_the_remedy() {
    let events = Events::of_this_process();
    let server = Server::with(&["--maxmemory-policy", "volatile-lru", "--maxmemory", "100mb"]);
    let manager = manager(&server.url()).await;
    let warnings = || events.with(&["WARN", "maxmemory-policy noeviction", &server.address()]);
    eventually("the warning", SOON, || !warnings().is_empty()).await;
    // Neither a lock nor a new connection repeats the warning.
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    server.tell("CLIENT KILL TYPE normal");
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    let warnings = warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("volatile-lru") && warnings[0].contains("104857600"), "{warnings:?}");
}

#[tokio::test]
async fn a_server_that_keeps_everything_is_not_warned_of() {
    let events = Events::of_this_process();
    let (quiet, loud) = (Server::start(), Server::with(&["--maxmemory-policy", "allkeys-lru"]));
    let _quiet = manager(&quiet.url()).await;
    // One thread checks both managers, this one later.
    let _loud = manager(&loud.url()).await;
    eventually("the other's warning", SOON, || !events.with(&["allkeys-lru", &loud.address()]).is_empty()).await;
    assert!(events.with(&["evict", &quiet.address()]).is_empty());
}

#[tokio::test]
async fn without_the_right_to_look_everything_else_works() {
    let events = Events::of_this_process();
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    server.tell("ACL SETUSER blind on >secret ~* &* +@all -info");
    let url = server.url().replace("redis://", "redis://blind:secret@");
    let manager = LockManager::connect(&url).await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    eventually("a note", SOON, || !events.with(&["DEBUG", "+info", &server.address()]).is_empty()).await;
    assert!(events.with(&["WARN", "evict", &server.address()]).is_empty());
}
