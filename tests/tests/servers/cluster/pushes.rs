//! Messages reach every node, and are handled once.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::cluster::Cluster;
use tests::events::Events;

use super::{LONG, held, key_on, manager, wait_until_queued};

/// Hands a lock back and forth between two managers. Returns the average time of a hand-off.
pub(super) async fn hand_offs(cluster: &Cluster, key: &str, managers: [&LockManager; 2], count: u32) -> Duration {
    let mut guard = held(managers[0], key).await;
    let mut took = Duration::ZERO;
    for turn in 1..=count {
        let next = managers[turn as usize % 2].lock("p", key).timeout(LONG);
        let next = tokio::spawn(async move { (next.acquire().await.unwrap(), Instant::now()) });
        wait_until_queued(cluster, key).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let got;
        (guard, got) = next.await.unwrap();
        took += got - released;
    }
    guard.release().await.unwrap();
    took / count
}

#[tokio::test]
async fn a_lock_passes_on_by_a_push_on_every_master() {
    let cluster = Cluster::start();
    let (north, south) = (manager(&cluster).await, manager(&cluster).await);
    for master in 0..3 {
        let took = hand_offs(&cluster, &key_on(&cluster, master), [&north, &south], 10).await;
        // A waiter without a push asks once a second, so a hand-off would take half a second on average.
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}

#[tokio::test]
async fn copies_of_a_push_are_not_taken_for_grants_that_nobody_waits_for() {
    let events = Events::of_this_process();
    let cluster = Cluster::start();
    let (north, south) = (manager(&cluster).await, manager(&cluster).await);
    let keys = [0, 1, 2].map(|master| key_on(&cluster, master));
    // Now each process is connected to every master, and gets three copies of each message.
    for key in &keys {
        held(&north, key).await.release().await.unwrap();
        held(&south, key).await.release().await.unwrap();
    }
    for key in &keys {
        hand_offs(&cluster, key, [&north, &south], 10).await;
    }
    assert_eq!(events.with(&["given up"]), Vec::<String>::new());
}

#[tokio::test]
async fn a_waiter_that_is_not_connected_to_the_granting_master_is_passed_over_and_served_anyway() {
    let cluster = Cluster::start();
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let guard = held(&holder, &key).await;
    let waiting = waiter.lock("p", &key).timeout(LONG);
    let waiting = tokio::spawn(waiting.acquire());
    wait_until_queued(&cluster, &key).await;
    // The slot moves, and only the holder knows it.
    cluster.migrate(cluster.slot(&super::name(&key)), 1);
    let start = Instant::now();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}
