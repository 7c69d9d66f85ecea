//! URLs of clusters: what a user may write, and the errors for the rest.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::cluster::Cluster;
use tests::patience::NOISE;
use tests::server::{Server, free_port};

use super::manager;

async fn refused(url: &str) -> LockError {
    LockManager::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn the_error_for_a_url_without_a_node_shows_the_forms() {
    for place in ["", ",", "127.0.0.1,", "127.0.0.1/x", "127.0.0.1:port", "127.0.0.1/till/0"] {
        for scheme in ["redis", "rediss", "valkey", "valkeys"] {
            let error = refused(&format!("{scheme}-cluster://{place}")).await;
            assert!(matches!(error, LockError::InvalidSetting { .. }), "{place}: {error:?}");
            assert!(error.to_string().contains("redis-cluster://[user:password@]host"), "{error}");
        }
    }
    for (place, told) in
        [("127.0.0.1/x", "the database"), ("127.0.0.1,", "a host is missing"), ("canary@127.0.0.1", ":password@")]
    {
        let error = refused(&format!("redis-cluster://{place}")).await.to_string();
        assert!(error.contains(told) && !error.contains("canary"), "{place}: {error}");
    }
    let error = refused("http-cluster://127.0.0.1").await;
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
}

#[tokio::test]
async fn what_cannot_be_reached_is_named_and_no_password_is() {
    let start = Instant::now();
    let url = format!("redis-cluster://ada:canary@127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let error = refused(&url).await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(text.contains("the node 127.0.0.1:") && text.contains("refused"), "{text}");
    assert!(!text.contains("canary"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(2) + NOISE);
}

#[tokio::test]
async fn a_server_for_a_cluster_and_a_node_for_a_server_are_told_apart() {
    let cluster = Cluster::start();
    let error = refused(&format!("redis://{}", cluster.node(1).address())).await;
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    let server = Server::start();
    let error = refused(&format!("redis-cluster://{}", server.address())).await;
    assert!(error.to_string().contains("redis://"), "{error}");
}

#[tokio::test]
async fn nodes_that_are_down_or_stopped_are_not_missed() {
    let mut cluster = Cluster::with(3, true);
    cluster.node_mut(3).kill();
    cluster.node(4).freeze();
    let start = Instant::now();
    let addresses: Vec<_> = [3, 4, 5].map(|node| cluster.node(node).address()).into();
    let manager = LockManager::connect(&format!("redis-cluster://{}", addresses.join(","))).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    cluster.node(4).thaw();
}

#[tokio::test]
async fn one_node_is_enough_to_find_all_others() {
    let cluster = Cluster::start();
    let manager = LockManager::connect(&format!("redis-cluster://{}", cluster.node(2).address())).await.unwrap();
    for key in 0..20 {
        manager.lock("p", &key).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn credentials_are_for_every_node_and_a_missing_right_is_named() {
    let cluster = Cluster::start();
    let rights = "+set +get +del +pexpire +pttl +exists +zadd +zpopmin +zrange +zrem +zscore +time +publish +subscribe +eval +evalsha";
    for node in cluster.nodes() {
        node.tell(&format!("ACL SETUSER ada on >secret ~* &cache_lock:* -@all {rights} +cluster|slots +asking"));
        node.tell(&format!("ACL SETUSER bob on >secret ~* &cache_lock:* -@all {rights}"));
    }
    let url = |credentials: &str| cluster.url().replace("://", &format!("://{credentials}@"));
    let ada = LockManager::connect(&url("ada:secret")).await.unwrap();
    let waiting = manager(&cluster).await;
    for key in 0..10 {
        let guard = ada.lock("p", &key).fenced(true).acquire().await.unwrap();
        let next = waiting.lock("p", &key).timeout(Duration::from_secs(5)).acquire();
        let (released, next) = tokio::join!(guard.release(), next);
        released.unwrap();
        next.unwrap().release().await.unwrap();
    }
    let error = refused(&url("ada:wrong")).await;
    assert!(error.to_string().contains("user name or password"), "{error}");
    let error = refused(&url("bob:secret")).await;
    assert!(error.to_string().contains("+cluster|slots"), "{error}");
}
