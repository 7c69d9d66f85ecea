//! A new user's first steps on each kind of server: thirteen steps with locks, and each verb of `lockctl` that looks or takes.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::cluster::Cluster;
use tests::server::{Kind, Server};

use crate::{SOON, lockctl, on, text};

/// The commands that hosted servers leave out, or some of them: <https://redis.io> and the vendors' pages have the lists.
const LEFT_OUT: &str = "-client|tracking -client|caching -wait -config -script -info -psubscribe -cluster|myid -ssubscribe \
    -sunsubscribe -spublish";
/// A deadline that no step reaches.
const LEASE: Duration = Duration::from_secs(10);

/// Makes two tests for each server: a default one on this machine's Redis, and one of `--all` on another server.
macro_rules! on_each_kind {
    ($($steps:ident),+ $(,)?) => {
        mod redis {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $steps() {
                super::$steps(super::Kind::Redis).await;
            })+
        }
        mod valkey {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $steps() {
                super::$steps(super::Kind::Valkey).await;
            })+
        }
    };
}

on_each_kind!(first_steps, first_steps_where_much_is_left_out, first_steps_on_one_node_with_all_slots);

async fn first_steps(kind: Kind) {
    let server = Server::of(kind, &[]);
    steps(&server.url(), &server, true).await;
    verbs(&server.url()).await;
}

async fn first_steps_where_much_is_left_out(kind: Kind) {
    let server = Server::of(kind, &[]);
    steps(&for_a_poor_user(&server, &server.url()), &server, false).await;
    verbs(&for_a_poor_user(&server, &server.url())).await;
}

/// What hosted serverless offers look like.
async fn first_steps_on_one_node_with_all_slots(kind: Kind) {
    let cluster = Cluster::one_node(kind);
    steps(&cluster.url(), cluster.node(0), true).await;
    let url = for_a_poor_user(cluster.node(0), &cluster.url());
    steps(&url, cluster.node(0), false).await;
    verbs(&url).await;
}

/// The same address, for a user without these commands.
fn for_a_poor_user(server: &Server, url: &str) -> String {
    server.tell(&format!("ACL SETUSER poor on >secret ~* &* +@all {LEFT_OUT}"));
    url.replace("://", "://poor:secret@")
}

/// The thirteen steps. With `alarms`, a lock that is deleted by hand is noticed at once.
async fn steps(url: &str, server: &Server, alarms: bool) {
    // 1: connect.
    let [one, other] = ["one", "other"].map(|label| LockManager::builder().url(url).label(label).connect());
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    // 2 and 3: a lock is taken, is busy for another process, and is free again.
    let guard = one.lock("p", "k").acquire().await.unwrap();
    assert!(other.lock("p", "k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    // 4: the holder's process learns of a waiter.
    let guard = one.lock("p", "k").acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("p", "k").timeout(SOON).acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    // 5: a hold is renewed past its lease.
    let long =
        one.lock("p", "k").expire(Duration::from_millis(600)).run(tokio::time::sleep(Duration::from_millis(1500)));
    let (held, seen) = tokio::join!(long, async {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        other.lock("p", "k").try_acquire().await.unwrap().is_some()
    });
    assert!(held.is_ok() && !seen, "{held:?}");
    // 6: fencing tokens grow.
    let mut tokens = Vec::new();
    for locks in [&one, &other, &one] {
        let guard = locks.lock("p", "k").fenced(true).acquire().await.unwrap();
        tokens.push(guard.fencing_token().unwrap());
        guard.release().await.unwrap();
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    // 7: readers share, and a writer waits for them.
    let readers =
        (one.lock("p", "r").read().acquire().await.unwrap(), other.lock("p", "r").read().acquire().await.unwrap());
    assert!(one.lock("p", "r").try_acquire().await.unwrap().is_none());
    drop(readers);
    drop(one.lock("p", "r").timeout(SOON).acquire().await.unwrap());
    // 8: two at a time.
    let two = (
        one.lock("p", "n").permits(2).acquire().await.unwrap(),
        other.lock("p", "n").permits(2).acquire().await.unwrap(),
    );
    assert!(one.lock("p", "n").permits(2).try_acquire().await.unwrap().is_none());
    drop(two);
    // 9: several keys, all or none.
    let both = one.lock_all("p", ["a", "b"]).acquire().await.unwrap();
    assert!(other.lock("p", "b").try_acquire().await.unwrap().is_none());
    both.release().await.unwrap();
    // 10: once per period.
    let period = Duration::from_millis(500);
    one.lock("p", "job").at_least(period).run(async {}).await.unwrap();
    assert!(other.lock("p", "job").try_acquire().await.unwrap().is_none());
    drop(other.lock("p", "job").timeout(SOON).acquire().await.unwrap());
    // 11: by force.
    let guard = one.lock("p", "f").acquire().await.unwrap();
    assert!(other.force_release("p", "f").await.unwrap());
    guard.lost().await;
    assert!(guard.release().await.unwrap_err().to_string().contains("by force"));
    // 12: a deleted lock is noticed, at the latest by its renewal.
    let guard = one.lock("p", "d").expire(if alarms { LEASE } else { LEASE / 10 }).acquire().await.unwrap();
    // Confirmed, and armed if there are alarms.
    let confirmed = || guard.remaining() > if alarms { LEASE / 2 } else { LEASE / 20 };
    tests::patience::eventually("the lease is confirmed", SOON, confirmed).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    server.tell("DEL p:d");
    guard.lost().await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    drop(guard);
    // 13: a broken connection is made again, and the lock stays held.
    let guard = one.lock("p", "k").acquire().await.unwrap();
    server.tell("CLIENT KILL TYPE normal");
    server.tell("CLIENT KILL TYPE pubsub");
    assert!(other.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await.unwrap_err().is_timeout());
    guard.release().await.unwrap();
    drop(other.lock("p", "k").timeout(SOON).acquire().await.unwrap());
    one.shutdown().await;
    other.shutdown().await;
}

/// What `lockctl` does there.
async fn verbs(url: &str) {
    let locks = LockManager::builder().url(url).label("till 3").connect().await.unwrap();
    let guard = locks.lock("order", &7).acquire().await.unwrap();
    for words in [&["who", "order:7"][..], &["list"]] {
        let shown = on(url, words).assert().success();
        assert!(text(&shown.get_output().stdout).contains("till 3"), "{shown}");
    }
    on(url, &["run", "order:8", "--", "true"]).assert().success();
    on(url, &["bench"]).assert().success();
    on(url, &["doctor"]).assert().success();
    on(url, &["release", "--force", "order:7"]).assert().success();
    guard.lost().await;
    locks.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_in_words() {
    let old = Server::of(Kind::TooOld, &[]);
    let error = LockManager::connect(&old.url()).await.unwrap_err().to_string();
    assert!(error.contains("redis 6.2") && error.contains("lacks `PEXPIRE … GT`") && error.contains("7.0"), "{error}");
    let told = lockctl(&["doctor", &old.url()]).assert().failure();
    assert!(text(&told.get_output().stderr).contains("lacks `PEXPIRE … GT`"), "{told}");
}
