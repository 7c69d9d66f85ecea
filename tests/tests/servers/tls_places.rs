//! Locks over TLS under sentinels, in a cluster and on a quorum, with certificates that are signed by the test's own authority.
//!
//! A user can only hand in a client for a single server. At these places the machine must trust the authority, so each test runs a
//! child process with `SSL_CERT_FILE`.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::child::{self, Child};
use tests::cluster::Cluster;
use tests::patience::{NOISE, eventually, eventually_blocking};
use tests::sentinel::{NAME, Sentinel};
use tests::server::{Kind, Server, free_port};
use tests::tls::{Authority, arguments};

const LONG: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(3);
const BRIEFLY: Duration = Duration::from_millis(500);
const CONNECT: Duration = Duration::from_secs(1);

/// No test: a child process that trusts the authority and uses the place in its role.
#[tokio::test]
async fn client() {
    let Some(url) = child::role() else { return };
    let (north, south) = (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    eventually("the lease is confirmed", SOON, || guard.remaining() > LONG).await;
    assert!(south.lock("p", "k").timeout(BRIEFLY).acquire().await.unwrap_err().is_timeout());
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).fenced(true).acquire().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    let first = guard.fencing_token();
    guard.release().await.unwrap();
    let released = Instant::now();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.fencing_token() > first);
    guard.release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(1500), "{:?}", released.elapsed());
    north.shutdown().await;
    child::say("done");
}

/// Checks that the place at `url` works for a client that trusts the authority, and that without trust, or without TLS, the
/// error says so.
async fn assert_place_works(url: &str, authority: &Authority) {
    let mut client = Child::by(child::command(Some("tls_places::client"), url).env("SSL_CERT_FILE", authority.path()));
    client.wait_for("done");
    let text = is_refused(url).await;
    assert!(text.contains("not trusted") && text.contains("SSL_CERT_FILE"), "{text}");
    let text = is_refused(&url.replace("rediss", "redis").replace("redlocks", "redlock")).await;
    assert!(text.contains("rediss"), "{text}");
}

async fn is_refused(url: &str) -> String {
    let start = Instant::now();
    let error = LockManager::builder().url(url).connect_timeout(CONNECT).connect().await.unwrap_err();
    assert!(start.elapsed() < CONNECT + Duration::from_millis(100) + NOISE, "{:?}", start.elapsed());
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    error.to_string()
}

fn secured(authority: &Authority) -> (Server, u16) {
    let port = free_port();
    let options = arguments(&authority.options(port));
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    (Server::with(&options), port)
}

#[tokio::test]
async fn a_master_and_its_sentinels_speak_tls() {
    let authority = Authority::new();
    let (_master, port) = secured(&authority);
    let mut hosts = Vec::new();
    let sentinels: Vec<_> = (0..3)
        .map(|_| {
            let own = free_port();
            hosts.push(format!("127.0.0.1:{own}"));
            let options = [authority.options(own), vec![("tls-replication", "yes".to_owned())]].concat();
            Sentinel::with(Kind::Redis, port, &options)
        })
        .collect();
    eventually_blocking("the sentinels see the master", LONG, || sentinels.iter().all(Sentinel::sees_master));
    assert_place_works(&format!("rediss-sentinel://{}/{NAME}", hosts.join(",")), &authority).await;
}

#[tokio::test]
async fn a_cluster_speaks_tls() {
    let authority = Authority::new();
    let cluster = Cluster::secured(&authority);
    assert_place_works(&cluster.url(), &authority).await;
}

#[tokio::test]
async fn the_servers_of_a_quorum_speak_tls() {
    let authority = Authority::new();
    let servers: Vec<_> = (0..3).map(|_| secured(&authority)).collect();
    let hosts: Vec<_> = servers.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
    assert_place_works(&format!("redlocks://{}", hosts.join(",")), &authority).await;
}
