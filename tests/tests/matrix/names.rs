//! Which names mean the same lock: equal keys at different places, and keys that imitate other keys.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::patience::eventually;
use tests::server::{Server, free_port};
use tokio::time::sleep;

use crate::{manager, wait_until_confirmed, wait_until_queued};

#[tokio::test]
async fn row_48_a_lock_on_one_server_is_not_handed_over_to_a_waiter_on_another() {
    let (one, two) = (Server::start(), Server::start());
    let here = manager(&one.url()).await;
    let there = manager(&two.url()).await;
    let named = LockManager::builder().url(&one.url()).namespace("n").connect().await.unwrap();
    let guards = [&here, &there, &named].map(|manager| manager.lock("p", "k").try_acquire());
    let [first, second, third] = futures_util::future::join_all(guards).await.try_into().unwrap();
    let (first, second, third) = (first.unwrap().unwrap(), second.unwrap().unwrap(), third.unwrap().unwrap());
    let waiter = tokio::spawn(there.lock("p", "k").timeout(Duration::from_secs(10)).acquire());
    sleep(Duration::from_millis(50)).await;
    first.release().await.unwrap();
    third.release().await.unwrap();
    sleep(Duration::from_millis(200)).await;
    assert!(!waiter.is_finished() && two.owner("p:k").is_some());
    second.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// Keys that would collide, or inject something into the name, if their parts were just concatenated.
#[tokio::test]
async fn row_49_keys_with_marks_of_the_protocol_are_locks_of_their_own() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let mut guards = Vec::new();
    for key in ["a", "a:b", "a%3Ab", "{a}", "{a", "a}", "%", "%25", "a b", "a\0", "a\n", "a\r\nDEL p:a", "ä", "|", "@"]
    {
        guards.push(manager.lock("p", key).acquire().await.unwrap());
    }
    guards.push(manager.lock("p", &("a", "b")).acquire().await.unwrap());
    let names: BTreeSet<_> = guards.iter().map(|guard| guard.key().to_owned()).collect();
    assert_eq!(names.len(), guards.len(), "{names:?}");
    assert_eq!(server.ask::<usize>("DBSIZE"), guards.len());
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(server.ask::<usize>("DBSIZE"), 0);
}

/// A server in cluster mode refuses a command whose keys are not all in one slot.
#[tokio::test]
async fn row_49_all_keys_of_a_lock_are_in_one_slot() {
    let bus = free_port().to_string();
    let server = Server::with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    server.tell("CLUSTER ADDSLOTSRANGE 0 16383");
    let is_ok = || server.ask::<String>("CLUSTER INFO").contains("cluster_state:ok");
    eventually("all slots are served", Duration::from_secs(10), is_ok).await;
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    wait_until_confirmed(&guard, Duration::from_secs(10)).await;
    let waiter = tokio::spawn(south.lock("p", "k").fenced(true).timeout(Duration::from_secs(10)).acquire());
    wait_until_queued(&server).await;
    let slot = |key: &str| server.ask::<u32>(&format!("CLUSTER KEYSLOT {key}"));
    assert_eq!(slot("p:k"), slot("{p:k}:queue"));
    assert_eq!(slot("p:k"), slot("{p:k}:fence"));
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    // A name that contains `{…}` can't choose its own slot in a cluster.
    let guard = north.lock("p", "a{b}c").fenced(true).acquire().await.unwrap();
    guard.release().await.unwrap();
}
