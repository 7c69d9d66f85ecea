//! Several keys over the wire: free keys on one server cost one round trip, also on a busy machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::{Distance, Proxy};
use tests::server::Server;

const ROUND_TRIP: u64 = 200;
/// What a busy machine may add; less than another round trip.
const SLACK: Duration = Duration::from_millis(150);

#[tokio::test]
async fn keys_that_are_free_cost_one_round_trip_together() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let locks = LockManager::connect(&proxy.url()).await.unwrap();
    let sets: [Vec<u64>; 3] = [vec![1], vec![2, 3], (10..40).collect()];
    for set in &sets {
        // The first request fills the script cache.
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

/// The most keys that a request may have.
const MOST: u64 = 1000;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Keeps all processors busy until it is dropped.
struct Load(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Load {
    fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = thread::available_parallelism().map_or(2, usize::from) * 2;
        let busy = |is_over: Arc<AtomicBool>| move || while !is_over.load(Ordering::Relaxed) {};
        let threads = (0..threads).map(|_| thread::spawn(busy(Arc::clone(&is_over)))).collect();
        Self(is_over, threads)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_keys_of_a_request_are_locked_in_time_on_a_loaded_machine() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    locks.lock_all("warm", [1, 2]).acquire().await.unwrap().release().await.unwrap();
    let reconnects = locks.stats().reconnects;
    let load = Load::begin();
    for round in 0..5 {
        let start = Instant::now();
        let guard = locks.lock_all("p", (round * MOST)..(round + 1) * MOST).timeout(TIMEOUT).acquire().await.unwrap();
        println!("had in {:?}, after {} commands", start.elapsed(), locks.stats().commands);
        assert!(start.elapsed() < TIMEOUT + NOISE && guard.is_valid(), "{:?}", start.elapsed());
        if round % 2 == 0 {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
    }
    assert_eq!(locks.stats().reconnects, reconnects, "the load of the request made the library give up a connection");
    drop(load);
    eventually("nothing is left", Duration::from_secs(3) + NOISE, || {
        !server.keys().keys().any(|key| key.starts_with("p:"))
    })
    .await;
}

#[tokio::test]
async fn more_keys_are_refused_in_words_and_nothing_is_sent() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let calls = server.commandstats();
    let refused = locks.lock_all("p", 0..=MOST).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::InvalidKey { .. }), "{refused:?}");
    assert!(refused.to_string().contains("at most 1000 keys together, and these are 1001"), "{refused}");
    // The keeper may still read the server's settings.
    let sent = server.commandstats().since(&calls);
    assert_eq!(["set", "eval", "evalsha"].map(|name| sent.of(name)), [0; 3], "{sent:?}");
    // A key that is given twice counts once.
    let guard = locks.lock_all("p", (0..MOST).chain(0..MOST)).acquire().await.unwrap();
    assert_eq!(guard.keys().len(), 1000);
}
