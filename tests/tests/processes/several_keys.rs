//! Several keys over the wire: what is free on one server costs one round trip.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::proxy::{Distance, Proxy};
use tests::server::Server;

const ROUND_TRIP: u64 = 200;
/// What a busy machine may add. It is less than one more round trip.
const SLACK: Duration = Duration::from_millis(150);

#[tokio::test]
async fn keys_that_are_free_cost_one_round_trip_together() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let sets: [Vec<u64>; 3] = [vec![1], vec![2, 3], (10..40).collect()];
    for set in &sets {
        // Once to fill the script cache.
        locks.lock_all("warm", set).acquire().await.unwrap().release().await.unwrap();
    }
    proxy.move_away(Distance::of_millis(ROUND_TRIP));
    for set in &sets {
        let earlier = proxy.count();
        let start = Instant::now();
        let guard = locks.lock_all("p", set).acquire().await.unwrap();
        let acquired = start.elapsed();
        let claims = proxy.work_since(earlier).iter().filter(|words| words[0] == "SET").count();
        assert_eq!(claims, set.len());
        let round_trip = Duration::from_millis(ROUND_TRIP);
        assert!(acquired < round_trip + SLACK, "{} keys: {acquired:?}", set.len());
        let start = Instant::now();
        guard.release().await.unwrap();
        let released = start.elapsed();
        assert!(released < round_trip + SLACK, "{} keys: released in {released:?}", set.len());
        println!("{} keys: acquired in {acquired:?}, released in {released:?}", set.len());
    }
}
