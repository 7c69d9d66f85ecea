//! Locks in a cluster: how the library finds masters, how slots move, and what a failover does.

mod databases;
mod failover;
mod helper_keys;
mod migration;
mod pushes;
mod replicas;
mod routing;
mod sharded;
mod urls;

use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};
use tests::cluster::Cluster;
use tests::patience::eventually;

const LONG: Duration = Duration::from_secs(20);
/// The default command timeout.
const COMMAND: Duration = Duration::from_millis(500);

async fn manager(cluster: &Cluster) -> LockManager {
    LockManager::connect(&cluster.url()).await.unwrap()
}

async fn fenced(manager: &LockManager, key: &str, timeout: Duration) -> LockGuard {
    manager.lock("p", key).timeout(timeout).fenced(true).acquire().await.unwrap()
}

/// Acquires the lock, and waits until its full lease is confirmed.
async fn held(manager: &LockManager, key: &str) -> LockGuard {
    let guard = manager.lock("p", key).expire(Duration::from_mins(1)).renew(true).acquire().await.unwrap();
    eventually("the lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
    guard
}

/// This many keys whose locks are on `master`.
fn keys_on(cluster: &Cluster, master: usize, count: usize) -> Vec<String> {
    let is_there = |key: &String| cluster.owner(cluster.slot(&format!("p:{key}"))) == master;
    (0..).map(|number| format!("k{number}")).filter(is_there).take(count).collect()
}

fn key_on(cluster: &Cluster, master: usize) -> String {
    keys_on(cluster, master, 1).remove(0)
}

fn name(key: &str) -> String {
    format!("p:{key}")
}

fn queue(key: &str) -> String {
    format!("{{p:{key}}}:queue")
}

async fn wait_until_queued(cluster: &Cluster, key: &str) {
    let is_there = || cluster.server_of(&name(key)).keys().contains_key(&queue(key));
    eventually("the waiter queues", LONG, is_there).await;
}

async fn wait_until_lost(guard: &LockGuard) {
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder learns of the loss");
}
