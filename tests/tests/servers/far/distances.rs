//! The table "At a distance" in docs/topologies.md, cell by cell.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tests::patience::{NOISE, eventually};
use tests::proxy::Distance;

use super::places::Far;
use super::recovery::ROUND_TRIPS;

const LONG: Duration = Duration::from_secs(9);
/// What a busy machine may add, twice, because two processes take part. It is less than the longest round trip, so that the test
/// notices an extra round trip.
const SLACK: Duration = NOISE.saturating_mul(2);

/// Connects from afar, tries, acquires, holds beyond the first claim, and hands off to a waiting manager, with the default
/// settings. Checks the number of round trips for connecting and for a hand-off.
async fn all_works(far: Far, round_trip: u64, (connects, passes): (u32, u32)) {
    let distance = Distance::of_millis(round_trip);
    far.move_away(distance);
    let trips = |count: u32| distance.round_trip * count + SLACK;
    let start = Instant::now();
    // The only verb for which a default may be too short.
    let manager = far.builder().connect_timeout(LONG).connect().await.unwrap();
    let connected = start.elapsed();
    // With TLS the library first reads the machine's certificates, which takes a while in a debug build on a busy machine.
    let reading = if far.is_tls() { Duration::from_secs(1) } else { Duration::ZERO };
    assert!(connected < trips(connects) + reading, "{round_trip} ms: connected in {connected:?}");
    drop(manager);
    far.move_away(Distance::default());
    let (one, other) = (far.manager_on_a_busy_machine().await, far.manager_on_a_busy_machine().await);
    for locks in [&one, &other] {
        // In a cluster the first lock makes the connection. When a hold is confirmed, the keeper has its connection, too.
        let guard = locks.lock("warm", "up").acquire().await.unwrap();
        eventually("the hold is confirmed", LONG, || guard.remaining() > Duration::from_secs(15)).await;
        guard.release().await.unwrap();
    }
    far.move_away(distance);
    let start = Instant::now();
    let guard = one.lock("p", "k").try_acquire().await.unwrap().expect("it is free");
    let tried = start.elapsed();
    assert!(one.lock("p", "k").try_acquire().await.unwrap().is_none(), "{round_trip} ms: it is held");
    assert!(other.lock("p", "k").try_acquire().await.unwrap().is_none(), "{round_trip} ms: it is held elsewhere");
    let waiter = tokio::spawn(async move {
        let guard = other.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        (Instant::now(), guard)
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(guard.remaining() > Duration::from_secs(15), "{round_trip} ms: {:?}", guard.remaining());
    let released = Instant::now();
    guard.release().await.unwrap();
    let (had, guard) = waiter.await.unwrap();
    let passed = had.duration_since(released);
    assert!(passed < trips(passes), "{round_trip} ms: passed on after {passed:?}");
    guard.release().await.unwrap();
    println!("{round_trip} ms: connected in {connected:?}, tried in {tried:?}, passed on in {passed:?}");
}

async fn at(place: fn() -> Far, round_trips: &[u64], trips: (u32, u32)) {
    let worlds: Vec<_> =
        round_trips.iter().map(|round_trip| tokio::spawn(all_works(place(), *round_trip, trips))).collect();
    for outcome in join_all(worlds).await {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn everything_works_on_one_server_at_every_distance() {
    at(Far::one_server, &ROUND_TRIPS, (2, 1)).await;
}

#[tokio::test]
async fn everything_works_over_tls_from_far_away() {
    at(Far::tls, &[200, 400], (3, 1)).await;
}

#[tokio::test]
async fn everything_works_under_sentinels_from_far_away() {
    at(Far::sentinel, &[200, 400], (4, 1)).await;
}

#[tokio::test]
async fn everything_works_in_a_cluster_from_far_away() {
    at(Far::cluster, &[200, 400], (2, 2)).await;
}

#[tokio::test]
async fn everything_works_on_a_quorum_from_far_away() {
    // A waiter may have asked just before the release, and pauses for up to a quarter of a second before it asks again.
    at(Far::quorum, &[200, 400], (4, 4)).await;
}
