//! A replica takes over from a master.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::cluster::Cluster;
use tests::patience::eventually;

use super::{LONG, fenced, held, key_on, manager, name, wait_until_lost, wait_until_queued};

/// How long locks don't work after a master died: the others need a second to detect it, and a moment to vote.
const FAILOVER: Duration = Duration::from_secs(10);

/// Waits until the replica of the first master has all of its writes.
async fn wait_until_replicated(cluster: &Cluster) {
    let is_equal = || {
        let offset = |node: usize| {
            let info: String = cluster.node(node).ask("INFO replication");
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            field("slave_repl_offset:").or_else(|| field("master_repl_offset:"))
        };
        offset(0) == offset(3)
    };
    eventually("the replica has all writes", LONG, is_equal).await;
}

#[tokio::test]
async fn locks_work_again_after_a_master_died_and_fencing_tokens_grow() {
    let mut cluster = Cluster::with(3, true);
    let (manager, key) = (manager(&cluster).await, key_on(&cluster, 0));
    let first = fenced(&manager, &key, LONG).await;
    let before = first.fencing_token();
    first.release().await.unwrap();
    cluster.node_mut(0).kill();
    let start = Instant::now();
    let second = fenced(&manager, &key, LONG).await;
    assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
    assert!(second.fencing_token() > before);
    assert!(cluster.node(3).owner(&name(&key)).is_some());
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_the_replica_knew_of_outlives_the_failover_and_so_do_its_waiters() {
    let mut cluster = Cluster::with(3, true);
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let guard = held(&holder, &key).await;
    let waiting = tokio::spawn(waiter.lock("p", &key).timeout(LONG * 2).acquire());
    wait_until_queued(&cluster, &key).await;
    wait_until_replicated(&cluster).await;
    cluster.node_mut(0).kill();
    cluster.await_master(3);
    cluster.settle();
    assert!(guard.is_valid());
    assert!(!waiting.is_finished());
    let start = Instant::now();
    // The first try may still find the connection to the old master.
    let _ = guard.release().await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_hold_lost_in_a_failover_is_reported_and_the_next_fencing_token_is_greater() {
    let mut cluster = Cluster::with(3, true);
    let (holder, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    // The master has no password and refuses one, so from now on nothing reaches the replica.
    cluster.node(3).tell("CONFIG SET masterauth wrong");
    cluster.node(0).tell("CLIENT KILL TYPE replica");
    eventually("the replica is cut off", LONG, || {
        cluster.node(0).ask::<String>("INFO replication").contains("connected_slaves:0")
    })
    .await;
    let guard = fenced(&holder, &key, LONG).await;
    eventually("the lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
    cluster.node_mut(0).kill();
    let next = fenced(&other, &key, LONG).await;
    assert!(next.fencing_token() > guard.fencing_token());
    wait_until_lost(&guard).await;
    assert!(guard.release().await.unwrap_err().is_lost());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_master_that_is_stopped_is_replaced_and_its_connection_given_up() {
    let cluster = Cluster::with(3, true);
    let (manager, key) = (manager(&cluster).await, key_on(&cluster, 0));
    held(&manager, &key).await.release().await.unwrap();
    cluster.node(0).freeze();
    let start = Instant::now();
    let guard = fenced(&manager, &key, LONG).await;
    assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
    assert!(cluster.node(3).owner(&name(&key)).is_some());
    cluster.node(0).thaw();
    cluster.settle();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_failover_without_a_fault_costs_no_hold_and_no_waiter() {
    let cluster = Cluster::with(3, true);
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let slot = cluster.slot(&name(&key));
    for _ in 0..3 {
        let replica = (cluster.owner(slot) + 3) % 6;
        let guard = held(&holder, &key).await;
        let waiting = tokio::spawn(waiter.lock("p", &key).timeout(LONG).acquire());
        wait_until_queued(&cluster, &key).await;
        cluster.fail_over_to(replica);
        let start = Instant::now();
        assert!(guard.is_valid());
        // The old master may delay a command past its timeout. Then the command is repeated.
        let outcome = guard.release().await;
        assert!(!outcome.is_err_and(|error| error.is_lost()));
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
        cluster.await_one_master(replica);
        cluster.settle();
    }
}

/// A limit of Redis, which topologies.md names: the promoted replica lacks the moved keys and does not know of the move. So it
/// grants the lock again, with a greater fencing token. The holder gets `Lost`.
#[tokio::test]
async fn a_failover_while_a_slot_moves_may_lose_its_locks() {
    let cluster = Cluster::with(3, true);
    let builder = || LockManager::builder().url(&cluster.url()).min_replicas(1, Duration::from_millis(200));
    let (holder, other) = (builder().connect().await.unwrap(), builder().connect().await.unwrap());
    let key = key_on(&cluster, 0);
    let guard = fenced(&holder, &key, LONG).await;
    let migration = cluster.start_migration(cluster.slot(&name(&key)), 1);
    migration.move_keys();
    cluster.fail_over_to(3);
    let next = fenced(&other, &key, LONG).await;
    assert!(next.fencing_token() > guard.fencing_token());
    drop(migration);
    wait_until_lost(&guard).await;
    next.release().await.unwrap();
}
