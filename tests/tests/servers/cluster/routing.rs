//! Each lock is on the master of its slot, and needs no other master.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::cluster::Cluster;
use tests::patience::{NOISE, eventually};
use tests::server::{Kind, Server};

use super::{COMMAND, LONG, fenced, held, key_on, keys_on, manager, name};

/// The number of clients, without this test's own.
fn clients(node: &Server) -> usize {
    node.ask::<String>("CLIENT LIST TYPE normal").lines().count() - 1 + subscribers(node)
}

pub(super) fn subscribers(node: &Server) -> usize {
    node.ask::<String>("CLIENT LIST TYPE pubsub").lines().count()
}

async fn lives_on_the_master_of_its_slot(kind: Kind) {
    let cluster = Cluster::of(kind);
    let manager = manager(&cluster).await;
    let mut guards = Vec::new();
    for key in 0..50 {
        guards.push(manager.lock("p", &key).fenced(true).acquire().await.unwrap());
    }
    for guard in &guards {
        assert!(cluster.server_of(guard.key()).owner(guard.key()).is_some());
    }
    for master in 0..3 {
        assert!(cluster.node(master).ask::<usize>("DBSIZE") > 10, "every master must have a part of the locks");
    }
    for guard in guards {
        let key = guard.key().to_owned();
        guard.release().await.unwrap();
        assert_eq!(cluster.server_of(&key).owner(&key), None);
    }
}

#[tokio::test]
async fn a_lock_lives_on_the_master_of_its_slot() {
    lives_on_the_master_of_its_slot(Kind::Redis).await;
}

#[tokio::test]
async fn a_lock_lives_on_the_master_of_its_slot_of_valkey() {
    lives_on_the_master_of_its_slot(Kind::Valkey).await;
}

#[tokio::test]
async fn a_task_that_waits_for_a_siblings_answer_names_the_silent_master() {
    let cluster = Cluster::start();
    let manager = manager(&cluster).await;
    let node = cluster.server_of("p:k");
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    node.freeze();
    let first = tokio::spawn(manager.lock("p", "k").timeout(LONG).acquire());
    tokio::task::yield_now().await;
    let error = manager.lock("p", "k").timeout(COMMAND / 2).acquire().await.unwrap_err();
    node.thaw();
    drop(first.await.unwrap().unwrap());
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains(&node.address()), "{error}");
}

/// A script may use the keys of one slot only.
#[tokio::test]
async fn many_locks_on_one_master_are_renewed_and_released() {
    let cluster = Cluster::start();
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let (keys, lease) = (keys_on(&cluster, 0, 8), Duration::from_secs(6));
    let acquire = async |manager: &LockManager, key: &String| {
        manager.lock("p", key).expire(lease).renew(true).timeout(LONG).acquire().await.unwrap()
    };
    let guards = join_all(keys.iter().map(|key| acquire(&holder, key))).await;
    let waiting = async {
        join_all(keys.iter().map(|key| acquire(&waiter, key))).await;
        Instant::now()
    };
    let holding = async {
        tokio::time::sleep(lease + Duration::from_secs(1)).await;
        assert!(guards.iter().all(LockGuard::is_valid));
        drop(guards);
        Instant::now()
    };
    let (granted, dropped) = tokio::join!(waiting, holding);
    assert!(granted - dropped < lease / 2, "{:?}: the leases had to expire", granted - dropped);
}

#[tokio::test]
async fn a_master_that_no_lock_lives_on_is_not_connected_to() {
    let cluster = Cluster::start();
    let manager = manager(&cluster).await;
    let guard = held(&manager, &key_on(&cluster, 1)).await;
    // The connections that asked for the slot map at the start are closed.
    eventually("no connection is left", LONG, || clients(cluster.node(0)) + clients(cluster.node(2)) == 0).await;
    assert!(clients(cluster.node(1)) >= 2, "there must be one for the callers and one for the keeper");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(clients(cluster.node(0)) + clients(cluster.node(2)), 0);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_master_that_hangs_delays_no_lock_on_another() {
    let cluster = Cluster::start();
    for node in cluster.nodes() {
        // Otherwise the others stop serving, too, when they consider it dead.
        node.tell("CONFIG SET cluster-require-full-coverage no");
    }
    let manager = manager(&cluster).await;
    let keys = [keys_on(&cluster, 0, 5), keys_on(&cluster, 1, 5)].concat();
    for key in [&keys[0], &keys[5]] {
        held(&manager, key).await.release().await.unwrap();
    }
    // Their leases are shorter than the command timeout, and renewed at the same time: a renewal that waits for the hung
    // master's would be too late.
    let renewed = |key: &String| manager.lock("p", key).expire(Duration::from_millis(450)).renew(true).acquire();
    let mut healthy: Vec<_> = join_all(keys.iter().map(renewed)).await.into_iter().map(Result::unwrap).collect();
    let hanging = healthy.split_off(5);
    let other = key_on(&cluster, 2);
    cluster.node(1).freeze();
    let stuck = manager.lock("p", &keys[5]).timeout(Duration::from_secs(2)).acquire();
    let stuck = tokio::spawn(stuck);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2500) {
        let one = Instant::now();
        manager.lock("p", &other).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
        assert!(one.elapsed() < COMMAND, "{:?}", one.elapsed());
        assert!(healthy.iter().all(LockGuard::is_valid), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(stuck.await.unwrap().is_err());
    assert!(!hanging.iter().any(LockGuard::is_valid), "nothing hung");
    cluster.node(1).thaw();
    for guard in healthy {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_slot_that_has_moved_costs_a_redirection_and_no_error() {
    let cluster = Cluster::start();
    let (manager, key) = (manager(&cluster).await, key_on(&cluster, 0));
    let first = fenced(&manager, &key, LONG).await;
    let before = first.fencing_token();
    first.release().await.unwrap();
    cluster.migrate(cluster.slot(&name(&key)), 2);
    // A single try sends one claim.
    let guard = manager.lock("p", &key).try_acquire().await.unwrap().unwrap();
    assert!(cluster.node(2).owner(&name(&key)).is_some());
    guard.release().await.unwrap();
    let refusals = || cluster.node(0).ask::<String>("INFO errorstats");
    let before_more = refusals();
    assert!(fenced(&manager, &key, LONG).await.fencing_token() > before);
    let moved = |text: &str| text.lines().find(|line| line.starts_with("errorstat_MOVED")).map(str::to_owned);
    assert_eq!(moved(&refusals()), moved(&before_more), "the new place must be known now");
}

#[tokio::test]
async fn only_the_locks_of_a_broken_connection_are_verified() {
    let cluster = Cluster::start();
    let manager = manager(&cluster).await;
    let guards = [held(&manager, &key_on(&cluster, 0)).await, held(&manager, &key_on(&cluster, 1)).await];
    let scripts = |node: usize| {
        let calls = cluster.node(node).commandstats();
        calls.of("evalsha") + calls.of("eval")
    };
    let before = [scripts(0), scripts(1)];
    cluster.node(0).tell("CLIENT KILL TYPE pubsub");
    eventually("the lease is verified", LONG, || scripts(0) > before[0]).await;
    assert_eq!(scripts(1), before[1]);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_node_that_has_all_slots_is_a_server_like_any_other() {
    let cluster = Cluster::with(1, false);
    for url in [cluster.url(), format!("redis://{}", cluster.node(0).address())] {
        let manager = LockManager::connect(&url).await.unwrap();
        fenced(&manager, "k", LONG).await.release().await.unwrap();
        // Several locks at once, although a script may only use the keys of one slot. An unconfirmed lock would expire with its claim.
        let all = manager.lock_all("p", ["a", "b", "c"]).acquire().await.unwrap();
        let (one, other) = tokio::join!(held(&manager, "d"), held(&manager, "e"));
        let (one, other, all) = tokio::join!(one.release(), other.release(), all.release());
        one.and(other).and(all).unwrap();
        for key in ["p:a", "p:b", "p:c", "p:d", "p:e"] {
            assert_eq!(cluster.node(0).owner(key), None, "{key}");
        }
    }
}

#[tokio::test]
async fn a_cluster_without_a_majority_is_reported_in_time() {
    let mut cluster = Cluster::start();
    let (manager, key) = (manager(&cluster).await, key_on(&cluster, 0));
    held(&manager, &key).await.release().await.unwrap();
    cluster.node_mut(1).kill();
    cluster.node_mut(2).kill();
    eventually("the node notices", LONG, || {
        cluster.node(0).ask::<String>("CLUSTER INFO").contains("cluster_state:fail")
    })
    .await;
    let (start, timeout) = (Instant::now(), Duration::from_secs(1));
    let error = manager.lock("p", &key).timeout(timeout).acquire().await.unwrap_err();
    assert!(error.to_string().contains("CLUSTERDOWN"), "{error}");
    assert!(start.elapsed() < timeout + Duration::from_millis(100) + NOISE, "{:?}", start.elapsed());
    cluster.node_mut(1).restart();
    cluster.node_mut(2).restart();
    manager.lock("p", &key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// The other masters still answer. An outage of one master must not look like a busy lock.
#[tokio::test]
async fn a_request_for_several_keys_names_the_master_that_hangs() {
    let cluster = Cluster::with(3, false);
    for node in cluster.nodes() {
        node.tell("CONFIG SET cluster-require-full-coverage no");
    }
    let manager = manager(&cluster).await;
    let keys = [keys_on(&cluster, 0, 2), keys_on(&cluster, 1, 1)].concat();
    let other = keys_on(&cluster, 0, 3).swap_remove(2);
    for key in &keys {
        held(&manager, key).await.release().await.unwrap();
    }
    cluster.node(1).freeze();
    let told = async {
        for timeout in [0, 1, 20, 60, 200, 1000].map(Duration::from_millis) {
            let start = Instant::now();
            let told = manager.lock_all("p", &keys).timeout(timeout).acquire().await;
            assert!(matches!(told, Err(LockError::Backend { .. })), "{timeout:?}: {told:?}");
            let allowed = if timeout.is_zero() { COMMAND } else { timeout } + NOISE + Duration::from_millis(100);
            assert!(start.elapsed() < allowed, "{timeout:?}: {:?}", start.elapsed());
        }
    };
    let answers = async {
        loop {
            let _ = manager.lock("p", &other).acquire().await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        () = told => {}
        () = answers => {}
    }
    cluster.node(1).thaw();
}
