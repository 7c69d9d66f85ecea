//! A service whose server is down: how it starts, how long a request takes, and how it learns that the server is back.

use std::time::Duration;

use lock_runtime::{Builder, ErrorKind, LockError, LockManager};
use tests::cluster::Cluster;
use tests::patience::{NOISE, eventually};
use tests::quorum::Servers;
use tests::server::{Kind, Server};
use tokio::time::{Instant, sleep};

const AFTER: Duration = Duration::from_millis(700);
const LONG: Duration = Duration::from_secs(20);

fn builder() -> Builder {
    LockManager::builder().default_timeout(LONG)
}

/// Makes a request that fails, and returns how long it took, and its error.
async fn refused(locks: &LockManager, key: u32) -> (Duration, LockError) {
    let start = Instant::now();
    let error = locks.lock("p", &key).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    (start.elapsed(), error)
}

/// Retries until a lock is granted.
async fn wait_until_it_works(locks: &LockManager) {
    let start = Instant::now();
    loop {
        match locks.lock("p", "again").acquire().await {
            Ok(guard) => return guard.release().await.unwrap(),
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_request_fails_at_once_when_the_server_was_away_for_as_long_as_the_user_set() {
    let mut server = Server::start();
    let locks = builder().url(&server.url()).fail_fast(AFTER).connect().await.unwrap();
    locks.lock("p", &0).acquire().await.unwrap().release().await.unwrap();
    server.kill();
    let (took, _) = refused(&locks, 1).await;
    assert!(took > AFTER * 9 / 10 && took < AFTER + NOISE * 3, "{took:?}");
    for key in 0..20 {
        let (took, error) = refused(&locks, key).await;
        assert!(took < NOISE, "{took:?}");
        assert!(error.to_string().contains("unreachable for"), "{error}");
    }
    server.restart();
    wait_until_it_works(&locks).await;
}

#[tokio::test]
async fn a_request_that_waits_for_another_process_fails_as_well() {
    let mut server = Server::start();
    let other = builder().url(&server.url()).connect().await.unwrap();
    let _held = other.lock("p", &0).acquire().await.unwrap();
    let locks = builder().url(&server.url()).fail_fast(AFTER).connect().await.unwrap();
    let waiting = tokio::spawn(async move { refused(&locks, 0).await });
    eventually("it waits", LONG, || server.keys().contains_key("{p:0}:queue")).await;
    server.kill();
    let killed = Instant::now();
    waiting.await.unwrap();
    assert!(killed.elapsed() < AFTER * 2, "{:?}", killed.elapsed());
}

#[tokio::test]
async fn a_server_that_hangs_is_away_from_its_first_silence() {
    let server = Server::start();
    let locks = builder().url(&server.url()).fail_fast(AFTER).connect().await.unwrap();
    locks.lock("p", &0).acquire().await.unwrap().release().await.unwrap();
    server.freeze();
    let (took, _) = refused(&locks, 1).await;
    assert!(took < AFTER * 3, "{took:?}");
    for key in 0..5 {
        let (took, _) = refused(&locks, key).await;
        assert!(took < NOISE, "{took:?}");
    }
    server.thaw();
    wait_until_it_works(&locks).await;
}

#[tokio::test]
async fn a_server_that_came_back_while_nobody_asked_is_not_away() {
    let mut server = Server::start();
    let locks = builder().url(&server.url()).fail_fast(Duration::ZERO).connect().await.unwrap();
    server.kill();
    refused(&locks, 1).await;
    server.restart();
    // Longer than a failure is remembered.
    sleep(Duration::from_millis(1200)).await;
    locks.lock("p", &0).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_command_just_after_a_failed_attempt_to_connect_finds_the_server_that_is_back() {
    let server = Server::on_socket();
    let way = server.folder().join("way");
    let open_way = || std::os::unix::fs::symlink(server.folder().join("redis.sock"), &way).unwrap();
    open_way();
    let locks = builder().url(&format!("unix://{}", way.display())).connect().await.unwrap();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    std::fs::remove_file(&way).unwrap();
    for kind in ["normal", "pubsub"] {
        server.tell(&format!("CLIENT KILL TYPE {kind}"));
    }
    // Longer than a command waits for a server that has just gone.
    sleep(Duration::from_secs(1)).await;
    let error = locks.lock("p", "other").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    open_way();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_majority_of_a_quorum_can_be_away() {
    let mut servers = Servers::of(Kind::Redis, 3);
    let locks = builder().url(&servers.url()).fail_fast(AFTER).connect().await.unwrap();
    locks.lock("p", &0).acquire().await.unwrap().release().await.unwrap();
    servers.server_mut(0).kill();
    locks.lock("p", &0).acquire().await.unwrap().release().await.unwrap();
    servers.server_mut(1).kill();
    let (took, _) = refused(&locks, 1).await;
    assert!(took < AFTER * 3, "{took:?}");
    let (took, error) = refused(&locks, 2).await;
    assert!(took < NOISE && error.to_string().contains("2 of 3 servers"), "{took:?}: {error}");
    assert!(!locks.is_connected());
}

#[tokio::test]
async fn a_master_of_a_cluster_can_be_away() {
    let cluster = Cluster::of(Kind::Redis);
    let locks = builder().url(&cluster.url()).fail_fast(AFTER).connect().await.unwrap();
    locks.lock("p", &1).acquire().await.unwrap().release().await.unwrap();
    assert!(locks.is_connected());
    let master = cluster.node(cluster.owner_of("p:1"));
    master.freeze();
    let (took, error) = refused(&locks, 1).await;
    assert!(took < AFTER * 4, "{took:?}: {error}");
    let (took, _) = refused(&locks, 1).await;
    assert!(took < NOISE, "{took:?}");
    master.thaw();
    wait_until_it_works(&locks).await;
}

/// The master was down before this process needed it.
#[tokio::test]
async fn a_master_that_could_not_be_reached_counts_as_one_that_was_lost() {
    let mut cluster = Cluster::of(Kind::Redis);
    let locks = builder().url(&cluster.url()).fail_fast(AFTER).connect().await.unwrap();
    assert!(locks.is_connected(), "it needed no master yet");
    let away = cluster.owner_of("p:1");
    cluster.node_mut(away).kill();
    refused(&locks, 1).await;
    assert!(!locks.is_connected());
    cluster.node_mut(away).restart();
    wait_until_it_works(&locks).await;
    eventually("it is back", LONG, || locks.is_connected()).await;
}

#[tokio::test]
async fn a_service_starts_without_its_server() {
    let mut server = Server::start();
    server.kill();
    let locks = LockManager::builder().url(&server.url()).connect_lazy().unwrap();
    assert!(!locks.is_connected());
    let (took, error) = refused(&locks, 1).await;
    assert!(took < Duration::from_secs(2) + NOISE, "{took:?}: {error}");
    server.restart();
    wait_until_it_works(&locks).await;
    assert!(locks.is_connected());
    locks.shutdown().await;
}

#[tokio::test]
async fn a_mistake_in_the_settings_is_reported_at_once_also_without_a_server() {
    for (url, builder) in [
        ("redis://", builder().max_waiters(0)),
        ("no url at all", builder()),
        ("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", builder().min_replicas(1, Duration::from_millis(100))),
        ("redlock://127.0.0.1:1,127.0.0.1:2", builder()),
    ] {
        let refused = builder.url(url).connect_lazy().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Misuse, "{url}: {refused}");
    }
}

#[tokio::test]
async fn a_manager_of_each_place_connects_when_it_is_needed() {
    let (quorum, cluster, sentinels) =
        (Servers::of(Kind::Redis, 3), Cluster::of(Kind::Redis), tests::sentinel::Sentinels::of(Kind::Redis, 1));
    for url in [quorum.url(), cluster.url(), sentinels.url(), "memory://".to_owned()] {
        let locks = LockManager::builder().url(&url).connect_lazy().unwrap();
        wait_until_it_works(&locks).await;
        assert!(locks.is_connected(), "{url}");
        assert!(locks.inspect("p", "again").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_readiness_check_finds_out_that_the_server_is_back() {
    let mut server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    assert!(locks.is_connected());
    server.kill();
    eventually("it is away", LONG, || !locks.is_connected()).await;
    server.restart();
    // No request is needed for that.
    eventually("it is back", LONG, || locks.is_connected()).await;
}
