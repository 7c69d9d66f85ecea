//! Alarms: a server notifies a holder when somebody else changes its lock. Without alarms the holder learns of it with its next
//! renewal, 10 s later at worst.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::cluster::Cluster;
use tests::patience::{NOISE, eventually};
use tests::quorum::Servers;
use tests::sentinel::Sentinels;
use tests::server::{Kind, Server};
use tokio::time::{sleep, timeout};

/// The time for an alarm and one verification, on a busy machine. A third of the default lease is 20 times as long.
const AT_ONCE: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(20);

/// The number of keys that the server tracks for its clients.
fn tracked(server: &Server) -> usize {
    let stats: String = server.ask("INFO stats");
    let count = stats.lines().find_map(|line| line.strip_prefix("tracking_total_keys:"));
    count.and_then(|count| count.trim().parse().ok()).expect("a count of tracked keys")
}

async fn wait_until_armed(server: &Server) {
    eventually("the alarm is armed", LONG, || tracked(server) == 1).await;
}

async fn held(url: &str) -> (LockManager, LockGuard) {
    let manager = LockManager::connect(url).await.unwrap();
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    (manager, guard)
}

/// How long it takes until the guard knows that its hold is lost.
async fn lost_after(guard: LockGuard) -> Duration {
    let start = Instant::now();
    timeout(LONG, guard.lost()).await.expect("the holder notices the loss");
    let took = start.elapsed();
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { forced: false, .. }), "{error:?}");
    took
}

async fn assert_noticed_at_once(kind: Kind) {
    let commands = ["DEL p:k", "UNLINK p:k", "SET p:k theirs", "PEXPIRE p:k 0", "RENAME p:k p:other", "FLUSHALL"];
    let server = Server::of(kind, &[]);
    for command in commands {
        server.tell("FLUSHALL");
        let (manager, guard) = held(&server.url()).await;
        wait_until_armed(&server).await;
        server.tell(command);
        let took = lost_after(guard).await;
        assert!(took < AT_ONCE + NOISE, "{command}: {took:?}");
        println!("{command}: noticed after {took:?}");
        manager.shutdown().await;
    }
}

#[tokio::test]
async fn a_lock_that_an_admin_takes_away_is_noticed_at_once_on_redis() {
    assert_noticed_at_once(Kind::Redis).await;
}

#[tokio::test]
async fn a_lock_that_an_admin_takes_away_is_noticed_at_once_on_valkey() {
    assert_noticed_at_once(Kind::Valkey).await;
}

/// Before version 7.2, each read in a script makes the server track all keys of the script.
#[tokio::test]
async fn a_hundred_locks_are_armed_by_few_reads_and_each_has_its_alarm() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let mut guards = try_join_all((0..100).map(|key: i32| manager.lock("p", &key).acquire())).await.unwrap();
    eventually("all alarms are armed", LONG, || tracked(&server) == 100).await;
    let (reads, arming) = (server.commandstats().of("get"), server.commandstats().of("exists"));
    assert!(reads < 10 && arming < 10, "{reads} reads of one lock, {arming} reads that arm");
    server.tell("DEL p:57");
    let took = lost_after(guards.remove(57)).await;
    assert!(took < AT_ONCE + NOISE, "{took:?}");
    assert!(guards.iter().all(LockGuard::is_valid));
}

#[tokio::test]
async fn a_deleted_lock_is_noticed_at_once_in_a_cluster() {
    let cluster = Cluster::start();
    let (_manager, guard) = held(&cluster.url()).await;
    wait_until_armed(cluster.server_of("p:k")).await;
    cluster.server_of("p:k").tell("DEL p:k");
    let took = lost_after(guard).await;
    assert!(took < AT_ONCE + NOISE, "{took:?}");
}

#[tokio::test]
async fn a_deleted_lock_is_noticed_at_once_after_a_failover_of_the_sentinels() {
    let sentinels = Sentinels::start(1);
    let (_manager, guard) = held(&sentinels.url()).await;
    wait_until_armed(sentinels.server(0)).await;
    eventually("the replica has the lock", LONG, || sentinels.servers().all(|server| server.owner("p:k").is_some()))
        .await;
    let new = sentinels.fail_over();
    eventually("the new master's alarm is armed", LONG, || tracked(sentinels.server(new)) == 1 || !guard.is_valid())
        .await;
    assert!(guard.is_valid(), "the failover must keep the lock");
    sentinels.server(new).tell("DEL p:k");
    let took = lost_after(guard).await;
    assert!(took < AT_ONCE + NOISE, "{took:?}");
}

#[tokio::test]
async fn on_a_quorum_a_lock_is_lost_when_a_majority_has_deleted_it_and_not_before() {
    let all = Servers::start(3);
    let (_manager, guard) = held(&all.url()).await;
    for server in all.servers() {
        wait_until_armed(server).await;
    }
    all.server(0).tell("DEL p:k");
    sleep(AT_ONCE).await;
    assert!(guard.is_valid());
    all.server(1).tell("DEL p:k");
    let start = Instant::now();
    timeout(LONG, guard.lost()).await.expect("the holder notices the loss");
    assert!(start.elapsed() < Duration::from_secs(1) + AT_ONCE + NOISE, "{:?}", start.elapsed());
}

/// Without alarms the next renewal still notices the loss.
#[tokio::test]
async fn without_the_right_to_an_alarm_the_next_renewal_notices() {
    let server = Server::start();
    server.tell("ACL SETUSER least on >canary ~* &* +@all -client|tracking");
    let manager = LockManager::connect(&server.url().replace("redis://", "redis://least:canary@")).await.unwrap();
    let guard = manager.lock("p", "k").expire(Duration::from_secs(6)).renew(true).acquire().await.unwrap();
    sleep(Duration::from_millis(1300)).await;
    assert_eq!(tracked(&server), 0);
    server.tell("DEL p:k");
    let took = lost_after(guard).await;
    assert!(took > Duration::from_millis(300) && took < Duration::from_millis(700) + NOISE, "{took:?}");
}

#[tokio::test]
async fn the_rights_that_the_docs_name_are_enough_for_an_alarm() {
    let protocol = include_str!("../../../docs/protocol.md");
    let listed = protocol.split("ACL SETUSER locks").nth(1).unwrap().split("```").next().unwrap();
    let least: Vec<_> = listed.split_whitespace().filter(|word| word.starts_with(['+', '~', '&'])).collect();
    let line = protocol.lines().find_map(|line| line.strip_prefix("to learn of a `DEL` at once:")).unwrap();
    let server = Server::start();
    server.tell(&format!("ACL SETUSER least on >canary -@all {} {line}", least.join(" ")));
    let (_manager, guard) = held(&server.url().replace("redis://", "redis://least:canary@")).await;
    wait_until_armed(&server).await;
    server.tell("DEL p:k");
    let took = lost_after(guard).await;
    assert!(took < AT_ONCE + NOISE, "{took:?}");
}

/// An alarm costs the server a few hundred bytes per lock, while the lock is held.
#[tokio::test]
async fn an_alarm_is_gone_from_the_server_when_its_lock_is_released() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    for key in 0..500 {
        guards.push(manager.lock("p", &key).acquire().await.unwrap());
    }
    eventually("the alarms are armed", LONG, || tracked(&server) == 500).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    eventually("the alarms are gone", LONG, || tracked(&server) == 0).await;
}
