//! Grants that need a confirmation by replicas of the lock's master.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::cluster::Cluster;
use tests::patience::{NOISE, eventually};
use tests::server::Kind;

use super::{LONG, held, key_on, keys_on, name};

const WITHIN: Duration = Duration::from_millis(200);

async fn manager(url: &str) -> LockManager {
    LockManager::builder().url(url).min_replicas(1, WITHIN).connect().await.unwrap()
}

fn is_too_few(error: &LockError) -> bool {
    matches!(error, LockError::TooFewReplicas { confirmed: 0, wanted: 1, .. })
}

#[tokio::test]
async fn the_replica_of_its_master_has_a_lock_when_it_is_granted() {
    let cluster = Cluster::with(3, true);
    let manager = manager(&cluster.url()).await;
    for master in 0..3 {
        let key = key_on(&cluster, master);
        for fenced in [false, true] {
            let guard = manager.lock("p", &key).fenced(fenced).acquire().await.unwrap();
            let there: Vec<String> = cluster.node(master + 3).ask("KEYS *");
            assert!(there.contains(&name(&key)), "{master}: {there:?}");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_grant_that_no_replica_of_its_master_has_is_withdrawn_and_other_masters_go_on() {
    let cluster = Cluster::with(3, true);
    let manager = manager(&cluster.url()).await;
    let keys = [0, 1].map(|master| key_on(&cluster, master));
    cluster.node(3).freeze();
    for fenced in [false, true] {
        let start = Instant::now();
        let error = manager.lock("p", &keys[0]).timeout(LONG).fenced(fenced).acquire().await.unwrap_err();
        assert!(is_too_few(&error), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        manager.lock("p", &keys[1]).fenced(fenced).acquire().await.unwrap().release().await.unwrap();
    }
    cluster.node(3).thaw();
    manager.lock("p", &keys[0]).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// `WAIT` waits only for writes of its own connection. On a new connection this renewal is no write, nor is a message on a cluster node.
#[tokio::test]
async fn what_a_renewal_finds_long_enough_counts_only_when_the_replica_has_it() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let cluster = Cluster::launch(kind, 1, true);
        // As a single server, and as a cluster of one node.
        for url in [cluster.node(0).url(), cluster.url()] {
            let manager = manager(&url).await;
            let expire = Duration::from_secs(2);
            let guard = manager.lock("p", "k").expire(expire).renew(true).acquire().await.unwrap();
            tokio::time::sleep(expire).await;
            assert!(guard.is_valid(), "it was not renewed");
            cluster.node(1).freeze();
            // Now the master has it for a minute, and the replica does not.
            assert!(is_too_few(&guard.extend(Duration::from_mins(1)).await.unwrap_err()));
            cluster.node(0).tell("CLIENT KILL TYPE normal");
            cluster.node(0).tell("CLIENT KILL TYPE pubsub");
            let start = Instant::now();
            tokio::time::timeout(LONG, guard.lost()).await.expect("the holder learns of the loss");
            assert!(start.elapsed() < expire + NOISE, "{kind:?} {url}: {:?}", start.elapsed());
            cluster.node(1).thaw();
            cluster.settle();
            drop(guard);
            let start = Instant::now();
            manager.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
            assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "{:?}", start.elapsed());
        }
    }
}

#[tokio::test]
async fn a_confirmed_lock_outlives_its_master() {
    let mut cluster = Cluster::with(3, true);
    let (manager, key) = (manager(&cluster.url()).await, key_on(&cluster, 0));
    let guard = held(&manager, &key).await;
    // At once: the promise must not depend on the replica catching up later.
    cluster.node_mut(0).kill();
    cluster.await_master(3);
    let left = cluster.node(3).keys()[&name(&key)];
    assert!(left > 30_000, "{left}");
    cluster.settle();
    assert!(guard.is_valid());
    // No replica is left that could confirm a grant there.
    let other = &keys_on(&cluster, 3, 2)[1];
    let error = manager.lock("p", other).timeout(LONG).acquire().await.unwrap_err();
    assert!(is_too_few(&error), "{error:?}");
    guard.release().await.unwrap();
}

/// `min_replicas` costs two commands: a write, because the grant may not be a write on this connection, and one `WAIT` for all current
/// grants.
#[tokio::test]
async fn a_claim_takes_two_commands_more() {
    let cluster = Cluster::with(3, true);
    let (manager, key) = (manager(&cluster.url()).await, key_on(&cluster, 0));
    manager.lock("p", &key).acquire().await.unwrap().release().await.unwrap();
    eventually("nothing is on its way", LONG, || cluster.node(0).keys().is_empty()).await;
    let before = manager.stats().commands;
    let guard = manager.lock("p", &key).acquire().await.unwrap();
    assert_eq!(manager.stats().commands - before, 3);
    guard.release().await.unwrap();
}
