//! A quorum that is misconfigured, or can't be reached, is reported when a manager connects.

use std::time::{Duration, Instant};

use lock_runtime::{Builder, LockError, LockManager};
use tests::events::Events;
use tests::patience::{NOISE, eventually};
use tests::quorum::Servers;

use super::{LONG, held, manager};

async fn refused(builder: Builder) -> String {
    let error = builder.connect().await.expect_err("it is refused");
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn what_is_no_quorum_is_refused() {
    let builder = LockManager::builder;
    for (url, told) in [
        ("redlock://a", "needs 3 servers"),
        ("redlock://a,b", "needs 3 servers"),
        ("redlock://a,b,a:6379", "a:6379 is named twice"),
        ("redlock://a,,b", "redlock) can't be read: a host is missing"),
        ("redlock://a,b,c,", "redlock) can't be read: a host is missing"),
        ("redlock://", "names no host"),
        ("redlock://a,b,c/x", "redlock) can't be read: the database"),
        ("redlock://a,b,c/0/1", "redlock) can't be read: the database"),
        ("redlock://a,b,c:port", "redlock) can't be read"),
        ("redlock://u:canary/ret@a,b,c", "%2F"),
        ("redlock://a,b,:canary@c", "credentials are written once"),
        ("redlock://:canary@a,:p2@b,c", "credentials are written once"),
        ("redlock://canary@a,b,c", ":password@"),
        ("redlock://a,b,c?protocol=resp2", "`?` or `#`"),
        ("redlock://a,b,c/0?x=1", "`?` or `#`"),
        ("redlock://a,b,c#frag", "`?` or `#`"),
    ] {
        let error = refused(builder().url(url)).await;
        assert!(error.contains(told) && !error.contains("canary"), "{url}: {error}");
    }
    let error = refused(builder().quorum(["redis://a", "redis-sentinel://b/name", "redis://c"])).await;
    assert!(error.contains("not one server"), "{error}");
    let three = ["redis://a", "redis://b", "redis://c"];
    let error = refused(builder().quorum(three).min_replicas(1, Duration::from_millis(100))).await;
    assert!(error.contains("min_replicas"), "{error}");
    let error = refused(builder().quorum(three).max_lease(Duration::from_secs(1))).await;
    assert!(error.contains("default_expire") && error.contains("max_lease"), "{error}");
}

/// Its key would be the marker by which the servers' restarts are recognised, and its token would look like a restart.
#[tokio::test]
async fn the_name_of_the_record_on_each_server_is_refused_before_anything_is_sent() {
    let servers = Servers::start(3);
    let manager = manager(&servers).await;
    let before = servers.server(0).commandstats();
    let error = manager.lock("cache_lock", "quorum").acquire().await.unwrap_err();
    assert!(matches!(&error, LockError::InvalidKey { key, .. } if key == "cache_lock:quorum"), "{error:?}");
    assert!(error.to_string().contains("use another prefix or key"), "{error}");
    assert_eq!(servers.server(0).commandstats().since(&before).of("set"), 0);
    held(&manager, "quorum").await.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_longer_than_a_restarted_server_abstains_is_refused_before_anything_is_sent() {
    let servers = Servers::start(3);
    let manager = manager(&servers).await;
    let before = servers.server(0).commandstats();
    let error = manager.lock("p", "k").expire(Duration::from_secs(3601)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    assert_eq!(servers.server(0).commandstats().since(&before).of("set"), 0);
    let guard = held(&manager, "k").await;
    let error = guard.extend(Duration::from_secs(3601)).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn managers_that_start_at_once_on_new_servers_all_work() {
    for _ in 0..5 {
        let servers = Servers::start(3);
        let (one, two, three) = tokio::join!(manager(&servers), manager(&servers), manager(&servers));
        for manager in [one, two, three] {
            let guard = manager.lock("p", "k").acquire().await.unwrap();
            assert!(servers.owners("p:k").iter().flatten().count() >= 2);
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_named_and_no_password_is() {
    let mut servers = Servers::start(3);
    servers.server_mut(0).kill();
    servers.server_mut(1).kill();
    let start = Instant::now();
    let url = servers.url().replace("://", "://ada:canary@");
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(text.contains("of 3 servers") && text.contains(&servers.server(0).address()), "{text}");
    assert!(!text.contains("canary"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(2) + NOISE);
}

#[tokio::test]
async fn a_server_that_is_named_twice_in_different_words_has_no_two_votes() {
    let servers = Servers::start(2);
    let (one, two) = (servers.server(0).address(), servers.server(1).address());
    let url = format!("redlock://{one},{two},{}", two.replace("127.0.0.1", "localhost"));
    let error = LockManager::connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("are the same server") && error.contains("localhost"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_take_part_is_named_in_the_log() {
    let events = Events::of_this_process();
    let servers = Servers::start(3);
    // All servers must be up once, to be put in service.
    drop(manager(&servers).await);
    servers.server(2).tell("CONFIG SET requirepass canary");
    let manager = manager(&servers).await;
    held(&manager, "k").await.release().await.unwrap();
    let name = servers.server(2).address();
    eventually("it is named", LONG, || !events.with(&["WARN", &name, "does not take part"]).is_empty()).await;
}
