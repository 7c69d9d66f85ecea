//! After a cut all connections are made again, even if that takes long.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_runtime::{LockGuard, LockManager};
use tests::patience::eventually;
use tests::proxy::Distance;

use super::places::Far;

/// The round trips of the table in docs/topologies.md, in milliseconds.
pub(crate) const ROUND_TRIPS: [u64; 5] = [1, 30, 100, 200, 400];
/// More than the 2.5 s of a first claim, so that a hold that is still valid was confirmed.
const LONGER_THAN_A_CLAIM: Duration = Duration::from_secs(3);
/// Under sentinels a connection takes four round trips, and a hold needs two connections, one after the other.
const RECOVERED: Duration = Duration::from_secs(5);

fn slow_to_connect() -> Distance {
    Distance { first_bytes: Duration::from_secs(1), ..Distance::of_millis(1) }
}

async fn wait_until_confirmed(guard: &LockGuard) {
    eventually("the lease is confirmed", RECOVERED, || guard.remaining() > Duration::from_secs(15)).await;
}

/// Whether a single try gets a new, free lock.
async fn is_granted(manager: &LockManager, number: u32) -> bool {
    match manager.lock("try", &number).try_acquire().await {
        Ok(guard) => {
            guard.expect("the lock is free").release().await.unwrap();
            true
        }
        Err(_) => false,
    }
}

/// After a cut, single tries get locks again, holds remain valid, new holds are confirmed, and a dropped guard is released.
async fn all_is_well_again_after_a_cut(far: Far, distance: Distance) {
    let what = format!("{distance:?}");
    let manager = far.manager_on_a_busy_machine().await;
    let before = manager.lock("before", "cut").timeout(RECOVERED).acquire().await.unwrap();
    wait_until_confirmed(&before).await;
    far.move_away(distance);
    far.cut();
    let cut = Instant::now();
    let mut number = 0;
    while !is_granted(&manager, number).await {
        number += 1;
        assert!(cut.elapsed() < RECOVERED, "{what}: {number} tries of single locks failed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = cut.elapsed();
    for again in 1..=5 {
        assert!(is_granted(&manager, number + again).await, "{what}: a single try of a free lock failed");
    }
    let after = manager.lock("after", "cut").acquire().await.unwrap();
    let dropped = manager.lock("dropped", "guard").acquire().await.unwrap();
    wait_until_confirmed(&dropped).await;
    drop(dropped);
    let is_released = || !far.is_owned("dropped:guard");
    eventually("a dropped guard is released", RECOVERED, is_released).await;
    tokio::time::sleep(LONGER_THAN_A_CLAIM).await;
    assert!(before.is_valid() && after.is_valid(), "{what}: a hold was lost");
    assert!(after.remaining() > LONGER_THAN_A_CLAIM, "{what}: {:?}", after.remaining());
    after.release().await.unwrap();
    before.release().await.unwrap();
    println!("{what}: a single try succeeded {took:?} after the cut");
}

/// Plays a place at all distances at the same time.
async fn at(place: fn() -> Far, distances: impl IntoIterator<Item = Distance>) {
    let worlds = distances.into_iter().map(|distance| {
        let far = place();
        tokio::spawn(all_is_well_again_after_a_cut(far, distance))
    });
    for outcome in join_all(worlds.collect::<Vec<_>>()).await {
        outcome.unwrap();
    }
}

fn far_ones() -> [Distance; 3] {
    [Distance::of_millis(200), Distance::of_millis(400), slow_to_connect()]
}

#[tokio::test]
async fn one_server_recovers_at_every_distance() {
    at(Far::one_server, ROUND_TRIPS.map(Distance::of_millis)).await;
}

#[tokio::test]
async fn one_server_that_is_slow_to_connect_to_recovers() {
    at(Far::one_server, [slow_to_connect()]).await;
}

#[tokio::test]
async fn a_server_over_tls_recovers_far_away() {
    at(Far::tls, far_ones()).await;
}

#[tokio::test]
async fn a_master_under_sentinels_recovers_far_away() {
    at(Far::sentinel, far_ones()).await;
}

#[tokio::test]
async fn a_cluster_recovers_far_away() {
    at(Far::cluster, far_ones()).await;
}

#[tokio::test]
async fn a_quorum_recovers_far_away() {
    at(Far::quorum, far_ones()).await;
}
