//! Sharded messages: which nodes see them, and what happens to subscribers when their slot moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::cluster::Cluster;

use super::pushes::hand_offs;
use super::{LONG, held, key_on, keys_on, manager, name};

/// The calls of a command, summed over all nodes.
fn calls(cluster: &Cluster, command: &str) -> u64 {
    let of = |stats: String| {
        let field = format!("cmdstat_{command}:calls=");
        let rest = stats.lines().find_map(|line| line.strip_prefix(&field))?.split(',').next()?.to_owned();
        rest.parse::<u64>().ok()
    };
    cluster.nodes().filter_map(|node| of(node.ask("INFO commandstats"))).sum()
}

#[tokio::test]
async fn a_lock_that_goes_to_and_fro_costs_no_node_of_another_shard_a_message() {
    let cluster = Cluster::start();
    let managers = [&manager(&cluster).await, &manager(&cluster).await];
    let key = key_on(&cluster, 0);
    // The first hand-offs make the subscriptions.
    hand_offs(&cluster, &key, managers, 4).await;
    let before = ["publish", "spublish", "ssubscribe"].map(|command| calls(&cluster, command));
    hand_offs(&cluster, &key, managers, 10).await;
    let after = ["publish", "spublish", "ssubscribe"].map(|command| calls(&cluster, command));
    // On a busy machine a connection may be replaced. Then the next message goes to all nodes.
    assert!(after[0] <= before[0] + 2 && after[2] <= before[2] + 2, "{before:?} {after:?}");
    assert!(after[1] >= before[1] + 20, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_waiter_that_may_not_subscribe_to_its_shard_is_notified_as_before() {
    let cluster = Cluster::start();
    for node in cluster.nodes() {
        node.tell("ACL SETUSER poor on >canary ~* &* +@all -ssubscribe");
    }
    let url = cluster.url().replace("://", "://poor:canary@");
    let (poor, other) = (LockManager::connect(&url).await.unwrap(), manager(&cluster).await);
    let took = hand_offs(&cluster, &key_on(&cluster, 0), [&poor, &other], 10).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
}

/// Acquires the lock again and again, and checks that the holds are exclusive. Returns how many there were.
async fn use_it(manager: LockManager, key: String, holders: Arc<AtomicU32>, end: Instant) -> u32 {
    let mut count = 0;
    while Instant::now() < end {
        let guard = manager.lock("p", &key).timeout(LONG).acquire().await.unwrap();
        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "{key} is held twice");
        tokio::time::sleep(Duration::from_millis(1)).await;
        let is_mine = guard.is_valid();
        assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1, "{key} is held twice");
        let released = guard.release().await;
        // On a busy machine a server may take longer than the command timeout to process a move. Then the release is repeated.
        assert!(is_mine && !released.is_err_and(|error| error.is_lost()), "{key} is reported as lost");
        count += 1;
    }
    count
}

/// When a slot moves, the server ends its subscriptions. The client crate takes that message for the reply to a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_70_a_slot_that_moves_under_its_listeners_mixes_up_no_replies() {
    let cluster = Cluster::start();
    let managers = [manager(&cluster).await, manager(&cluster).await];
    // All on one master, so that each manager uses one connection.
    let keys = keys_on(&cluster, 0, 24);
    let end = Instant::now() + Duration::from_secs(4);
    let mut users = Vec::new();
    for key in &keys {
        let holders = Arc::new(AtomicU32::new(0));
        for manager in &managers {
            users.push(tokio::spawn(use_it(manager.clone(), key.clone(), Arc::clone(&holders), end)));
        }
    }
    for (round, key) in keys.iter().take(4).enumerate() {
        tokio::time::sleep(Duration::from_millis(400)).await;
        tokio::task::block_in_place(|| cluster.migrate(cluster.slot(&name(key)), 1 + round % 2));
    }
    for user in users {
        assert!(user.await.unwrap() > 0);
    }
}

#[tokio::test]
async fn row_70_a_waiter_whose_slot_moves_under_it_gets_the_lock_at_the_next_master() {
    let cluster = Cluster::start();
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    hand_offs(&cluster, &key, [&holder, &waiter], 4).await;
    let guard = held(&holder, &key).await;
    let next = waiter.lock("p", &key).timeout(LONG);
    let next = tokio::spawn(next.acquire());
    super::wait_until_queued(&cluster, &key).await;
    cluster.migrate(cluster.slot(&name(&key)), 1);
    let start = Instant::now();
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    hand_offs(&cluster, &key, [&holder, &waiter], 4).await;
}
