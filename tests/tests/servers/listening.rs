//! While a manager uses a connection to the master, it subscribes to all sentinels.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};
use tests::patience::eventually;
use tests::proxy::{Direction, Proxy};
use tests::sentinel::{NAME, Sentinels};
use tests::server::Server;

const LONG: Duration = Duration::from_secs(20);

async fn manager(sentinels: &Sentinels) -> LockManager {
    LockManager::connect(&sentinels.url()).await.unwrap()
}

async fn fenced(manager: &LockManager) -> LockGuard {
    manager.lock("p", "k").timeout(LONG).fenced(true).acquire().await.unwrap()
}

/// Sets the period of the sentinels' messages. They demote an old master only after four periods.
fn publish_every(sentinels: &Sentinels, period: &str) {
    for sentinel in 0..3 {
        sentinels.sentinel(sentinel).tell(&["DEBUG", "publish-period", period]);
    }
}

/// Checks that the locks move to this server as soon as the sentinels announce it, without a refusal by the old one.
async fn assert_locks_are_soon_on(manager: &LockManager, server: &Server) {
    let start = Instant::now();
    loop {
        let guard = fenced(manager).await;
        let is_there = server.owner("p:k").is_some();
        let _ = guard.release().await;
        if is_there {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn an_old_master_that_still_takes_writes_is_left_when_the_sentinels_choose_another() {
    let sentinels = Sentinels::start(1);
    let manager = manager(&sentinels).await;
    let first = fenced(&manager).await;
    let before = first.fencing_token();
    first.release().await.unwrap();
    publish_every(&sentinels, "2000");
    let new = sentinels.fail_over();
    assert_locks_are_soon_on(&manager, sentinels.server(new)).await;
    assert!(fenced(&manager).await.fencing_token() > before);
    assert!(
        sentinels.server(0).ask::<String>("INFO replication").contains("role:master"),
        "the old master was already demoted"
    );
}

#[tokio::test]
async fn every_sentinel_is_listened_to_so_that_none_that_hangs_is_missed() {
    let sentinels = Sentinels::start(1);
    // At first it is the only sentinel that answers.
    sentinels.sentinel(1).freeze();
    sentinels.sentinel(2).freeze();
    let manager = manager(&sentinels).await;
    sentinels.sentinel(1).thaw();
    sentinels.sentinel(2).thaw();
    sentinels.settle();
    for sentinel in 0..3 {
        eventually("it has a subscriber", LONG, || sentinels.sentinel(sentinel).listeners() > 0).await;
    }
    publish_every(&sentinels, "2000");
    sentinels.sentinel(0).freeze();
    let new = sentinels.fail_over_by(1);
    assert_locks_are_soon_on(&manager, sentinels.server(new)).await;
    assert!(
        sentinels.server(0).ask::<String>("INFO replication").contains("role:master"),
        "the old master was already demoted"
    );
    sentinels.sentinel(0).thaw();
}

#[tokio::test]
async fn a_hold_and_its_connections_outlive_all_sentinels() {
    let mut sentinels = Sentinels::start(1);
    let manager = manager(&sentinels).await;
    let guard = manager.lock("p", "k").expire(Duration::from_secs(1)).renew(true).acquire().await.unwrap();
    manager.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
    let before = both_connections_to(sentinels.server(0)).await;
    for sentinel in 0..3 {
        sentinels.sentinel_mut(sentinel).kill();
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        manager.lock("p", "other").try_acquire().await.unwrap().unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    guard.release().await.unwrap();
    assert_eq!(before, connections_to(sentinels.server(0)));
}

fn connections_to(server: &Server) -> BTreeSet<String> {
    let list: String = server.ask("CLIENT LIST");
    let ours = list.lines().filter(|line| line.contains("resp=3"));
    ours.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Waits until a manager has both connections, the callers' and the keeper's, and returns them.
async fn both_connections_to(server: &Server) -> BTreeSet<String> {
    eventually("both connections are made", LONG, || connections_to(server).len() == 2).await;
    connections_to(server)
}

#[tokio::test]
async fn a_connection_to_a_sentinel_that_breaks_or_hangs_is_replaced_and_that_to_the_master_kept() {
    let sentinels = Sentinels::start(0);
    let proxies = [0, 1].map(|sentinel| Proxy::to(sentinels.sentinel(sentinel).address(), false));
    let hosts = proxies.each_ref().map(|proxy| proxy.url().replace("redis://", "")).join(",");
    let manager = LockManager::connect(&format!("redis-sentinel://{hosts}/{NAME}")).await.unwrap();
    // When a hold is confirmed, the keeper is connected; an earlier attempt may have been given up.
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    eventually("the hold is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
    guard.release().await.unwrap();
    let both = |proxy: &Proxy| proxy.lines().len() == 2;
    eventually("all sentinels have subscribers", LONG, || proxies.iter().all(both)).await;
    let lines = proxies.each_ref().map(Proxy::lines);
    let before = both_connections_to(sentinels.server(0)).await;
    proxies[0].cut();
    proxies[1].black_hole(Direction::Both);
    let anew = || {
        proxies.iter().zip(&lines).all(|(proxy, before)| {
            let lines = proxy.lines();
            lines.len() == 2 && lines.iter().all(|line| !before.contains(line))
        })
    };
    eventually("they have subscribers on new connections", LONG, anew).await;
    assert_eq!(before, connections_to(sentinels.server(0)));
}

#[tokio::test]
async fn an_unreachable_sentinel_is_tried_at_a_slow_pace() {
    let sentinels = Sentinels::start(0);
    let broken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = sentinels.url().replace(&format!("/{NAME}"), &format!(",{}/{NAME}", broken.local_addr().unwrap()));
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for connection in broken.incoming() {
            drop(connection);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let manager = LockManager::connect(&url).await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let tries = tries.load(Ordering::SeqCst);
    // Both connections to the master try it.
    assert!((2..=2 * 6).contains(&tries), "{tries}");
}

#[tokio::test]
async fn an_older_choice_of_the_sentinels_never_overrides_a_newer_one() {
    let sentinels = Sentinels::start(1);
    publish_every(&sentinels, "60000");
    let port = sentinels.server(0).address().replace("127.0.0.1:", "");
    let new = sentinels.fail_over();
    // A sentinel that is cut off together with the old master still considers it the master.
    let outdated = sentinels.sentinel(2);
    outdated.tell(&["REMOVE", NAME]);
    outdated.tell(&["MONITOR", NAME, "127.0.0.1", &port, "2"]);
    eventually("the old master is a master again", LONG, || {
        sentinels.server(0).tell("REPLICAOF NO ONE");
        sentinels.server(0).ask::<String>("INFO replication").contains("role:master")
    })
    .await;
    // It is the first sentinel that answers.
    for other in 0..2 {
        sentinels.sentinel(other).freeze();
    }
    let manager = manager(&sentinels).await;
    for other in 0..2 {
        sentinels.sentinel(other).thaw();
    }
    assert_locks_are_soon_on(&manager, sentinels.server(new)).await;
    let start = Instant::now();
    // The keeper connects when there is a lease to keep.
    let _kept = manager.lock("p", "kept").acquire().await.unwrap();
    let clients = both_connections_to(sentinels.server(new)).await;
    while start.elapsed() < Duration::from_secs(3) {
        let guard = fenced(&manager).await;
        assert!(sentinels.server(new).owner("p:k").is_some());
        guard.release().await.unwrap();
    }
    assert_eq!(clients, connections_to(sentinels.server(new)));
    assert!(
        sentinels.server(0).ask::<String>("INFO replication").contains("role:master"),
        "the old master was already demoted"
    );
}
