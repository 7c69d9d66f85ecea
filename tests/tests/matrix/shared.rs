//! Faults of shared locks.

use std::time::{Duration, Instant, SystemTime};

use lock_runtime::{LockManager, LockRequest};
use tests::patience::{NOISE, eventually};
use tests::server::Server;
use tokio::time::{sleep, timeout};

use crate::{LATE, LONG, manager, wait_until_confirmed, wait_until_lost};

/// The token of a process that is gone; its channel has no subscriber.
const DEAD: &str = "0123456789abcdef0123456789abcdef.1@dead";
const LEASE: Duration = Duration::from_secs(2);

/// Writes the shared lease of a process that is gone, in the format of docs/protocol.md.
fn dead_lease(server: &Server, capacity: u32) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let end = (now + LEASE).as_millis();
    server.tell(&format!("ZADD {{p:k}}:shared {end} {capacity}|{DEAD}"));
    server.tell(&format!("PEXPIREAT {{p:k}}:shared {end}"));
    server.tell(&format!("SET p:k cache_lock|shared PXAT {end}"));
}

#[tokio::test]
async fn row_66_a_reader_that_is_gone_delays_a_writer_by_its_lease_and_a_second() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    dead_lease(&server, 0);
    let start = Instant::now();
    let reader = manager.lock("p", "k").read().timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < NOISE, "a reader had to wait: {:?}", start.elapsed());
    reader.release().await.unwrap();
    let writer = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let waited = start.elapsed();
    assert!(waited > LEASE / 2 && waited < LEASE + Duration::from_secs(1) + LATE + NOISE, "{waited:?}");
    writer.release().await.unwrap();
}

#[tokio::test]
async fn row_66_a_permit_whose_holder_is_gone_delays_others_by_that_permit_alone() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    dead_lease(&server, 2);
    let permit = || manager.lock("p", "k").permits(2).timeout(LONG).acquire();
    let start = Instant::now();
    let first = permit().await.unwrap();
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
    let second = permit().await.unwrap();
    let waited = start.elapsed();
    assert!(waited > LEASE / 2 && waited < LEASE + Duration::from_secs(1) + LATE + NOISE, "{waited:?}");
    drop((first, second));
}

#[tokio::test]
async fn row_67_a_dead_writer_in_front_of_readers_delays_them_by_three_seconds_at_most() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let held = north.lock("p", "k").read().acquire().await.unwrap();
    server.tell(&format!("ZADD {{p:k}}:queue 1 2500|{DEAD}"));
    server.tell("PEXPIRE {p:k}:queue 5000");
    // The server has not noticed that it is dead.
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut listener = connection.as_pubsub();
    listener.subscribe("cache_lock:0123456789abcdef0123456789abcdef").unwrap();
    let start = Instant::now();
    let reader = south.lock("p", "k").read().timeout(LONG).acquire().await.unwrap();
    let waited = start.elapsed();
    assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(3) + NOISE, "{waited:?}");
    drop((held, reader));
}

/// The waiters of crashed processes have no subscriber. A stopped process still counts as a subscriber.
#[tokio::test]
async fn row_67_forty_dead_waiters_of_a_shared_lock_are_gone_in_one_look_and_a_stopped_one_costs_three_seconds() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let held = north.lock("p", "k").permits(1).acquire().await.unwrap();
    for (stopped, bound) in [(0, Duration::from_secs(1)), (1, Duration::from_secs(3))] {
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let mut listener = connection.as_pubsub();
        for number in 0..40 {
            let process = format!("{number:032x}");
            let kind = if number % 2 == 0 { "" } else { "s1" };
            server.tell(&format!("ZADD {{p:k}}:queue {} 2500{kind}|{process}.1@dead", number + 1));
            if number < stopped {
                listener.subscribe(format!("cache_lock:{process}")).unwrap();
            }
        }
        let start = Instant::now();
        let permit = south.lock("p", "k").permits(2).timeout(LONG).acquire().await.unwrap();
        let waited = start.elapsed();
        assert!(waited < bound + LATE + NOISE, "{stopped}: {waited:?}");
        permit.release().await.unwrap();
        assert!(!server.keys().contains_key("{p:k}:queue"));
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn row_67_a_writer_that_waits_for_long_keeps_its_place_in_front_of_readers() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let held = north.lock("p", "k").read().acquire().await.unwrap();
    let mut writer = Box::pin(south.lock("p", "k").timeout(LONG).acquire());
    assert!(timeout(Duration::from_millis(100), &mut writer).await.is_err());
    // Longer than the first waiter counts as alive without an ask.
    let mut reader = Box::pin(south.lock("p", "k").read().timeout(LONG).acquire());
    let both = async {
        tokio::select! { _ = &mut writer => "writer", _ = &mut reader => "reader" }
    };
    assert!(timeout(Duration::from_secs(4), both).await.is_err(), "the reader overtook the writer");
    held.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(timeout(Duration::from_millis(50), &mut reader).await.is_err());
    writer.release().await.unwrap();
    reader.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn row_68_leases_of_a_shared_lock_that_was_deleted_do_not_come_back() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let request = |manager: &LockManager| manager.lock("p", "k").read().expire(Duration::from_millis(600));
    let lost = request(&north).acquire().await.unwrap();
    wait_until_confirmed(&lost, Duration::from_millis(300)).await;
    server.tell("DEL p:k");
    let other = request(&south).acquire().await.unwrap();
    wait_until_lost(&lost).await;
    assert!(other.is_valid());
    drop(lost);
    sleep(Duration::from_millis(700)).await;
    assert!(other.is_valid(), "the release of the first reader ended the lease of the second");
    other.release().await.unwrap();
    assert_eq!(server.owner("p:k"), None);
}

#[tokio::test]
async fn row_69_a_full_memory_ends_no_shared_lease() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let request = |permits| manager.lock("p", "k").permits(permits).expire(Duration::from_millis(600));
    let guard = request(2).acquire().await.unwrap();
    wait_until_confirmed(&guard, Duration::from_millis(300)).await;
    server.tell("CONFIG SET maxmemory 1");
    let shared: [fn(LockRequest) -> LockRequest; 3] =
        [LockRequest::read, |lock| lock.permits(2), |lock| lock.read().fenced(true)];
    for (key, mode) in ["a", "b", "c", "k"].into_iter().zip(shared.into_iter().chain([shared[1]])) {
        let error = mode(manager.lock("p", key)).try_acquire().await.unwrap_err();
        assert!(error.to_string().contains("OOM"), "{key}: {error}");
    }
    sleep(Duration::from_millis(1500)).await;
    assert!(guard.is_valid(), "its renewals were refused");
    guard.release().await.unwrap();
    eventually("the lock is free", LONG, || server.owner("p:k").is_none()).await;
}

/// For a client that does not know this library a read lock is taken, and readers respect that client's lock.
#[tokio::test]
async fn a_plain_client_and_readers_exclude_each_other() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let readers =
        [north.lock("p", "k").read().acquire().await.unwrap(), south.lock("p", "k").read().acquire().await.unwrap()];
    let take = || server.ask::<Option<String>>("SET p:k stranger NX PX 60000");
    assert_eq!(take(), None);
    for reader in readers {
        assert_eq!(take(), None);
        reader.release().await.unwrap();
    }
    assert_eq!(take().as_deref(), Some("OK"));
    let busy = north.lock("p", "k").read().timeout(Duration::from_millis(50)).acquire().await.unwrap_err();
    assert!(busy.is_timeout(), "{busy}");
    server.tell("DEL p:k");
    north.lock("p", "k").read().timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}
