//! A database number in the URL of a cluster, which Valkey supports from version 9 on.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::cluster::Cluster;
use tests::patience::eventually;
use tests::server::Kind;

use super::{LONG, fenced, held, key_on, keys_on, name, queue};

const DATABASES: &[&str] = &["--cluster-databases", "4"];

async fn manager_of(cluster: &Cluster, database: u32) -> LockManager {
    LockManager::connect(&format!("{}/{database}", cluster.url())).await.unwrap()
}

/// Whether a node has this name in this database.
fn has(cluster: &Cluster, node: usize, database: u32, name: &str) -> bool {
    let client = redis::Client::open(format!("{}/{database}", cluster.node(node).url())).unwrap();
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut client.get_connection().unwrap()).unwrap();
    names.iter().any(|there| there == name)
}

#[tokio::test]
async fn locks_of_two_databases_are_strangers_and_each_keeps_its_own_through_hand_offs_moved_slots_and_a_failover() {
    let mut cluster = Cluster::configured(Kind::Valkey, 3, true, DATABASES);
    let (holder, waiter, elsewhere) =
        (manager_of(&cluster, 3).await, manager_of(&cluster, 3).await, manager_of(&cluster, 0).await);
    let key = key_on(&cluster, 0);
    let (lock, slot) = (name(&key), cluster.slot(&name(&key)));

    let guard = held(&holder, &key).await;
    let other = held(&elsewhere, &key).await;
    assert!(has(&cluster, 0, 3, &lock) && has(&cluster, 0, 0, &lock));
    other.release().await.unwrap();
    assert!(has(&cluster, 0, 3, &lock) && !has(&cluster, 0, 0, &lock));

    // A hand-off by push.
    let waiting = tokio::spawn(waiter.lock("p", &key).timeout(LONG).fenced(true).acquire());
    eventually("the waiter queues", LONG, || has(&cluster, 0, 3, &queue(&key))).await;
    let start = Instant::now();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());

    // While its slot moves, a free lock is granted by the next master (`ASK`).
    let moving = &keys_on(&cluster, 0, 2)[1];
    let migration = cluster.start_migration(cluster.slot(&name(moving)), 1);
    let on_its_way = holder.lock("p", moving).timeout(LONG).acquire().await.unwrap();
    assert!(has(&cluster, 1, 3, &name(moving)));
    migration.finish();
    on_its_way.release().await.unwrap();
    // `MOVED`
    cluster.migrate_atomically(slot, 2);
    let first = guard.fencing_token();
    assert!(holder.lock("p", &key).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = fenced(&waiter, &key, LONG).await;
    assert!(guard.fencing_token() > first && has(&cluster, 2, 3, &lock));
    guard.release().await.unwrap();

    let guard = fenced(&holder, &key, LONG).await;
    let last = guard.fencing_token();
    guard.release().await.unwrap();
    cluster.node_mut(2).kill();
    let guard = fenced(&holder, &key, LONG).await;
    assert!(guard.fencing_token() > last && has(&cluster, 5, 3, &lock) && !has(&cluster, 5, 0, &lock));
}

#[tokio::test]
async fn a_cluster_without_the_database_is_refused_in_words() {
    for (kind, database, told) in
        [(Kind::Redis, 3, "database 0 alone in a cluster"), (Kind::Valkey, 3, "`cluster-databases`")]
    {
        let cluster = Cluster::one_node(kind);
        for place in [cluster.url(), cluster.node(0).url()] {
            let error = LockManager::connect(&format!("{place}/{database}")).await.unwrap_err().to_string();
            assert!(error.contains(told), "{place}: {error}");
        }
        LockManager::connect(&format!("{}/0", cluster.url())).await.unwrap();
    }
}
