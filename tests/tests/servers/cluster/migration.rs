//! Slots that move from one master to another.

use std::time::Duration;

use tests::cluster::Cluster;
use tests::patience::eventually;
use tests::server::Kind;

use super::routing::subscribers;
use super::{COMMAND, LONG, fenced, held, key_on, manager, name, queue, wait_until_queued};

#[tokio::test]
async fn a_slot_that_moves_takes_holds_waiters_and_fencing_tokens_along() {
    takes_all_along(Cluster::start(), Cluster::migrate).await;
}

#[tokio::test]
async fn a_slot_that_valkey_moves_atomically_takes_all_along() {
    takes_all_along(Cluster::of(Kind::Valkey), Cluster::migrate_atomically).await;
}

async fn takes_all_along(cluster: Cluster, migrate: fn(&Cluster, u16, usize)) {
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let slot = cluster.slot(&name(&key));
    let mut guard = fenced(&holder, &key, LONG).await;
    for to in [1, 2, 0] {
        eventually("the lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
        let next = waiter.lock("p", &key).timeout(LONG).fenced(true);
        let next = tokio::spawn(next.acquire());
        wait_until_queued(&cluster, &key).await;
        migrate(&cluster, slot, to);
        assert!(guard.is_valid());
        let before = guard.fencing_token();
        guard.release().await.unwrap();
        guard = next.await.unwrap().unwrap();
        assert!(guard.fencing_token() > before);
        assert!(cluster.node(to).owner(&name(&key)).is_some());
        guard.release().await.unwrap();
        guard = fenced(&holder, &key, LONG).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_free_lock_of_a_slot_on_its_way_is_taken_at_its_next_master() {
    let cluster = Cluster::start();
    let (one, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    // Connect first, because a single try has no time for that.
    for manager in [&one, &other] {
        held(manager, &key_on(&cluster, 1)).await.release().await.unwrap();
    }
    let migration = cluster.start_migration(cluster.slot(&name(&key)), 1);
    let guard = one.lock("p", &key).expire(LONG).renew(false).try_acquire().await.unwrap().unwrap();
    assert!(cluster.node(0).try_ask::<Option<String>>(&format!("GET {}", name(&key))).is_err());
    // A renewal has a single key, so it also works during the move.
    eventually("the lease is confirmed", LONG, || guard.remaining() > LONG / 2).await;
    assert!(other.lock("p", &key).try_acquire().await.unwrap().is_none());
    migration.move_keys();
    migration.finish();
    assert!(guard.is_valid());
    assert!(cluster.node(1).owner(&name(&key)).is_some());
    guard.release().await.unwrap();
    other.lock("p", &key).try_acquire().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_waits_for_a_slot_whose_keys_are_here_and_there() {
    let cluster = Cluster::start();
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let guard = held(&holder, &key).await;
    let next = waiter.lock("p", &key).timeout(LONG);
    let next = tokio::spawn(next.acquire());
    wait_until_queued(&cluster, &key).await;
    let migration = cluster.start_migration(cluster.slot(&name(&key)), 1);
    let address = cluster.node(1).address().replace(':', " ");
    cluster.node(0).tell(&format!("MIGRATE {address}  0 5000 KEYS {}", name(&key)));
    let refused = cluster.node(0).try_ask::<i64>(&format!("EXISTS {} {}", name(&key), queue(&key)));
    assert_eq!(refused.unwrap_err().code(), Some("TRYAGAIN"));
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(COMMAND / 4).await;
    assert!(!releasing.is_finished(), "the release did not have to wait");
    migration.move_keys();
    migration.finish();
    // On a busy machine the move may take longer than the command timeout. Then the release is repeated.
    assert!(!releasing.await.unwrap().is_err_and(|error| error.is_lost()));
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_slot_that_does_not_arrive_is_reported_in_time_and_the_lock_released_when_it_does() {
    let cluster = Cluster::start();
    let (holder, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let guard = held(&holder, &key).await;
    let migration = cluster.start_migration(cluster.slot(&name(&key)), 1);
    migration.move_keys();
    let start = std::time::Instant::now();
    let error = guard.release().await.unwrap_err();
    assert!(error.to_string().contains("TRYAGAIN"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    migration.finish();
    other.lock("p", &key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_whose_slot_moves_is_soon_connected_to_its_next_master() {
    let cluster = Cluster::start();
    let (holder, waiter) = (manager(&cluster).await, manager(&cluster).await);
    let key = key_on(&cluster, 0);
    let guard = held(&holder, &key).await;
    let next = waiter.lock("p", &key).timeout(LONG);
    let next = tokio::spawn(next.acquire());
    wait_until_queued(&cluster, &key).await;
    cluster.migrate(cluster.slot(&name(&key)), 1);
    // The subscriber is the waiter: the holder does not use this master yet, and the waiter's keeper asks once a second without
    // a subscription.
    eventually("the waiter listens", LONG / 2, || subscribers(cluster.node(1)) > 0).await;
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}
