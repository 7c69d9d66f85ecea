//! Servers restart without their data.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::events::Events;
use tests::patience::eventually;
use tests::proxy::Proxy;
use tests::quorum::Servers;

use super::{LONG, ORPHAN, fenced, forgiving, held, manager};

/// The classical failure: B and C grant a lock, because its holder does not reach A. Then C loses it in a restart, and the lock is
/// free on two of three servers.
#[tokio::test]
async fn a_server_that_restarted_without_its_data_helps_nobody_to_a_second_hold() {
    let mut servers = Servers::start(3);
    let proxy = Proxy::before(servers.server(0));
    let urls = [proxy.url(), servers.server(1).url(), servers.server(2).url()];
    let holder = LockManager::builder().quorum(urls).connect().await.unwrap();
    let other = manager(&servers).await;
    drop(proxy);
    let guard = held(&holder, "k").await;
    eventually("it is confirmed", LONG, || guard.remaining() > Duration::from_secs(20)).await;
    servers.server_mut(2).kill();
    servers.server_mut(2).restart();
    assert_eq!(servers.owners("p:k").iter().flatten().count(), 1);
    let late = manager(&servers).await;
    for manager in [&other, &late] {
        for timeout in [Duration::ZERO, Duration::from_millis(500)] {
            assert!(manager.lock("p", "k").timeout(timeout).acquire().await.is_err());
            // Other locks are granted to all managers that reach the two servers that may vote.
            held(manager, "free").await.release().await.unwrap();
        }
    }
    assert!(guard.is_valid());
    servers.server_mut(1).kill();
    let error = other.lock("p", "free").timeout(Duration::from_millis(500)).acquire().await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains(&servers.server(2).address()) && told.contains("no vote for another"), "{told}");
}

/// A new server looks like one that has lost its data, until a manager knows that all of them are new.
#[tokio::test]
async fn new_servers_cause_no_warning() {
    let events = Events::of_this_process();
    let servers = Servers::start(3);
    held(&manager(&servers).await, "k").await.release().await.unwrap();
    assert!(events.with(&["WARN"]).is_empty(), "{:#?}", events.with(&["WARN"]));
}

/// A machine's clock is often corrected just after the start. Then its servers seem to have been up for long.
#[tokio::test]
async fn servers_whose_clocks_step_at_their_restart_help_nobody_to_a_second_hold() {
    let Some(mut servers) = Servers::with_clocks(3) else { return };
    let (holder, other) = (manager(&servers).await, manager(&servers).await);
    let guard = held(&holder, "k").await;
    eventually("all servers have it", LONG, || servers.owners("p:k").iter().all(Option::is_some)).await;
    for number in [1, 2] {
        let server = servers.server_mut(number);
        server.kill();
        server.restart();
        server.step_to(3_600_000);
    }
    let late = manager(&servers).await;
    for manager in [&other, &late] {
        for timeout in [Duration::ZERO, Duration::from_millis(1500)] {
            let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
            assert!(error.to_string().contains("no vote for another"), "{error}");
        }
    }
    drop(guard);
}

#[tokio::test]
async fn a_server_that_restarted_votes_again_when_every_lease_it_forgot_is_over() {
    let mut servers = Servers::start(3);
    let manager = forgiving(&servers.url()).await;
    held(&manager, "k").await.release().await.unwrap();
    servers.server_mut(2).kill();
    servers.server_mut(2).restart();
    servers.server_mut(1).kill();
    let start = Instant::now();
    held(&manager, "k").await.release().await.unwrap();
    assert!(start.elapsed() > Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_hold_goes_on_and_is_released_when_a_minority_forgot_it() {
    let mut servers = Servers::start(3);
    let manager = manager(&servers).await;
    let guard = manager.lock("p", "k").expire(Duration::from_secs(1)).renew(true).acquire().await.unwrap();
    servers.server_mut(0).kill();
    servers.server_mut(0).restart();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert!(servers.owners("p:k").iter().all(Option::is_none));
}

#[tokio::test]
async fn a_hold_that_a_majority_forgot_is_lost() {
    let mut servers = Servers::start(3);
    let manager = manager(&servers).await;
    let guard = held(&manager, "k").await;
    // A claim that one server has not answered is sent again when the server is back.
    eventually("all servers have it", LONG, || servers.owners("p:k").iter().all(Option::is_some)).await;
    eventually("it is confirmed", LONG, || guard.remaining() > ORPHAN).await;
    for number in [0, 1] {
        servers.server_mut(number).kill();
        servers.server_mut(number).restart();
    }
    tokio::time::timeout(ORPHAN, guard.lost()).await.unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn fencing_tokens_grow_while_servers_die_and_return() {
    let mut servers = Servers::start(3);
    let (one, two) = (forgiving(&servers.url()).await, forgiving(&servers.url()).await);
    let mut last = 0;
    for dead in [0, 1, 2, 0] {
        servers.server_mut(dead).kill();
        for _ in 0..10 {
            for manager in [&one, &two] {
                let token = fenced(manager, "k").await;
                assert!(token > last, "{token} after {last}");
                last = token;
            }
        }
        servers.server_mut(dead).restart();
    }
}
