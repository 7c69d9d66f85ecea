//! Locks under sentinels: how the library finds the master, and what a failover does.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};
use tests::sentinel::{NAME, Sentinels};
use tests::server::{Server, free_port};

const LONG: Duration = Duration::from_secs(20);
/// How long locks don't work after a master died: the sentinels need half a second to detect it and a moment to agree; a
/// split vote costs another round.
const FAILOVER: Duration = Duration::from_secs(10);

async fn manager(sentinels: &Sentinels) -> LockManager {
    LockManager::connect(&sentinels.url()).await.unwrap()
}

async fn fenced(manager: &LockManager, key: &str, timeout: Duration) -> LockGuard {
    manager.lock("p", key).timeout(timeout).fenced(true).acquire().await.unwrap()
}

fn host_and_port(server: &Server) -> (String, String) {
    let address = server.address();
    address.split_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap()
}

async fn wait_until_lost(guard: &LockGuard) {
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder learns of the loss");
}

async fn wait_until_confirmed(guard: &LockGuard) {
    eventually("the lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
}

async fn refused(url: &str) -> LockError {
    LockManager::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn the_error_for_a_url_without_a_master_shows_the_forms() {
    for place in ["127.0.0.1", "127.0.0.1/", "/till", "127.0.0.1,/till", "127.0.0.1/till/db", "127.0.0.1:port/till", ""]
    {
        for scheme in ["redis", "rediss", "valkey"] {
            let error = refused(&format!("{scheme}-sentinel://{place}")).await;
            assert!(matches!(error, LockError::InvalidSetting { .. }), "{place}: {error:?}");
            assert!(error.to_string().contains("redis-sentinel://[user:password@]host"), "{error}");
        }
    }
    for (place, told) in [
        ("127.0.0.1", "master's name is missing"),
        ("127.0.0.1/till/x", "not a number"),
        ("127.0.0.1/till?db=3", "`?` or `#`"),
        ("canary@127.0.0.1/till", ":password@"),
    ] {
        let error = refused(&format!("redis-sentinel://{place}")).await.to_string();
        assert!(error.contains(told) && !error.contains("canary"), "{place}: {error}");
    }
    let error = refused("http-sentinel://127.0.0.1/till").await;
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
}

#[tokio::test]
async fn the_error_for_credentials_per_host_says_to_write_them_once() {
    for place in ["a:b@one,c:d@two/till", "one,c:d@two/till", "a,b:c@one/till", "a@b:c@one/till"] {
        let error = refused(&format!("redis-sentinel://{place}")).await;
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{place}: {error:?}");
        assert!(error.to_string().contains("once, before the first host"), "{error}");
    }
    for place in ["one?db=3/till", "one#x/till", "one,two?x"] {
        let error = refused(&format!("redis-sentinel://{place}")).await;
        assert!(error.to_string().contains("`?` or `#`"), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_named_and_no_password_is() {
    let start = Instant::now();
    let ports = [free_port(), free_port()];
    let url = format!("redis-sentinel://ada:canary@127.0.0.1:{},127.0.0.1:{}/till", ports[0], ports[1]);
    let error = refused(&url).await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(text.contains("the sentinel 127.0.0.1:") && text.contains("refused") && text.contains("till"), "{text}");
    assert!(!text.contains("canary"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(2) + NOISE);
}

#[tokio::test]
async fn a_server_for_a_sentinel_and_a_sentinel_for_a_server_are_told_apart() {
    let sentinels = Sentinels::start(0);
    let error = refused(&format!("redis://{}", sentinels.sentinel(0).address())).await;
    assert!(error.to_string().contains("redis-sentinel://"), "{error}");
    let error = refused(&format!("redis-sentinel://{}/{NAME}", sentinels.server(0).address())).await;
    assert!(error.to_string().contains("the sentinel") && error.to_string().contains("write redis://"), "{error}");
    let error = refused(&format!("redis-sentinel://{}/other", sentinels.sentinel(0).address())).await;
    assert!(error.to_string().contains("no master called `other`"), "{error}");
}

#[tokio::test]
async fn sentinels_that_are_down_or_stopped_are_not_missed() {
    let mut sentinels = Sentinels::start(0);
    sentinels.sentinel_mut(0).kill();
    sentinels.sentinel(1).freeze();
    let start = Instant::now();
    let manager = manager(&sentinels).await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    sentinels.sentinel(1).thaw();
}

#[tokio::test]
async fn credentials_are_for_the_servers_and_for_sentinels_that_want_some() {
    let sentinels = Sentinels::start(0);
    sentinels.server(0).tell("ACL SETUSER ada on >secret ~* &* +@all");
    sentinels.server(0).tell("SELECT 0");
    let url = sentinels.url().replace("://", "://ada:secret@") + "/5";
    let manager = LockManager::connect(&url).await.unwrap();
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    assert!(sentinels.server(0).ask::<String>("INFO keyspace").contains("db5:"));
    guard.release().await.unwrap();
    let error = refused(&url.replace("secret", "wrong")).await;
    assert!(error.to_string().contains("user name or password"), "{error}");

    let asked = redis::Client::open(format!("redis://{}", sentinels.sentinel(0).address())).unwrap();
    let mut sentinel = asked.get_connection().unwrap();
    redis::cmd("ACL").arg(&["SETUSER", "ada", "on", ">secret", "+@all", "&*"]).exec(&mut sentinel).unwrap();
    redis::cmd("ACL").arg(&["SETUSER", "default", "off"]).exec(&mut sentinel).unwrap();
    let one = format!("redis-sentinel://ada:secret@{}/{NAME}", sentinels.sentinel(0).address());
    LockManager::connect(&one).await.unwrap();
    let error = refused(&one.replace("ada:secret@", "")).await;
    assert!(error.to_string().contains("redis-sentinel://:password@host"), "{error}");
}

#[tokio::test]
async fn locks_work_again_after_the_master_died_and_fencing_tokens_grow() {
    let mut sentinels = Sentinels::start(1);
    let manager = manager(&sentinels).await;
    let first = fenced(&manager, "k", LONG).await;
    let before = first.fencing_token().unwrap();
    first.release().await.unwrap();
    sentinels.server_mut(0).kill();
    let start = Instant::now();
    let second = fenced(&manager, "k", LONG).await;
    assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
    assert!(second.fencing_token().unwrap() > before);
    assert_eq!(sentinels.await_another(0), 1);
    assert!(sentinels.server(1).owner("p:k").is_some());
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_lost_in_a_failover_is_reported_and_the_next_fencing_token_is_greater() {
    let mut sentinels = Sentinels::start(1);
    let (holder, other) = (manager(&sentinels).await, manager(&sentinels).await);
    sentinels.cut_replication();
    let mut last = None;
    // A counter would start again on a replica that has none of these tokens.
    for _ in 0..20 {
        let guard = fenced(&holder, "k", LONG).await;
        last = guard.fencing_token();
        guard.release().await.unwrap();
    }
    let guard = fenced(&holder, "k", LONG).await;
    assert!(guard.fencing_token() > last);
    wait_until_confirmed(&guard).await;
    sentinels.server_mut(0).kill();
    let next = fenced(&other, "k", LONG).await;
    assert!(next.fencing_token() > guard.fencing_token());
    wait_until_lost(&guard).await;
    assert!(guard.release().await.unwrap_err().is_lost());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_the_replica_knew_of_outlives_the_failover() {
    let mut sentinels = Sentinels::start(1);
    let (holder, other) = (manager(&sentinels).await, manager(&sentinels).await);
    let guard = holder.lock("p", "k").expire(Duration::from_mins(1)).renew(true).acquire().await.unwrap();
    wait_until_confirmed(&guard).await;
    assert_eq!(sentinels.server(0).ask::<u32>("WAIT 1 5000"), 1);
    eventually("the replica has the lock", LONG, || sentinels.server(1).owner("p:k").is_some()).await;
    sentinels.server_mut(0).kill();
    let error = other.lock("p", "k").timeout(FAILOVER).acquire().await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(sentinels.master(), Some(1));
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    other.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_is_served_after_the_failover() {
    let mut sentinels = Sentinels::start(1);
    let (holder, waiter) = (manager(&sentinels).await, manager(&sentinels).await);
    let guard = holder.lock("p", "k").expire(Duration::from_mins(1)).renew(true).acquire().await.unwrap();
    wait_until_confirmed(&guard).await;
    let waiting = tokio::spawn(async move { waiter.lock("p", "k").timeout(LONG).acquire().await.map(drop) });
    eventually("the waiter queues", LONG, || sentinels.server(0).keys().contains_key("{p:k}:queue")).await;
    eventually("the replica has the lock", LONG, || sentinels.server(1).owner("p:k").is_some()).await;
    sentinels.server_mut(0).kill();
    assert_eq!(sentinels.await_another(0), 1);
    let start = Instant::now();
    eventually("the new master answers", LONG, || sentinels.server(1).try_ask::<()>("PING").is_ok()).await;
    // The first try may still find the connection to the old master.
    let _ = guard.release().await;
    waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
}

async fn is_left_at_its_first_refusal(by_script: bool) {
    let sentinels = Sentinels::start(1);
    let manager = manager(&sentinels).await;
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    // Switch the master by hand, without the sentinels, so that no connection is cut.
    let [old, new] = [sentinels.server(0), sentinels.server(1)];
    for sentinel in 0..3 {
        sentinels.sentinel(sentinel).tell(&["REMOVE", NAME]);
    }
    let (host, port) = host_and_port(new);
    new.tell("REPLICAOF NO ONE");
    old.tell(&format!("REPLICAOF {host} {port}"));
    for sentinel in 0..3 {
        sentinels.sentinel(sentinel).tell(&["MONITOR", NAME, &host, &port, "2"]);
    }
    let start = Instant::now();
    let guard = if by_script {
        fenced(&manager, "k", LONG).await
    } else {
        // A single try sends a claim, and repeats it. An acquire's second try would be a script.
        manager.lock("p", "k").try_acquire().await.unwrap().unwrap()
    };
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(new.owner("p:k").is_some());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left_when_it_refuses_a_claim() {
    is_left_at_its_first_refusal(false).await;
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left_when_it_refuses_a_script() {
    is_left_at_its_first_refusal(true).await;
}

#[tokio::test]
async fn a_server_that_is_no_master_is_not_used_whatever_a_sentinel_says() {
    let sentinels = Sentinels::start(1);
    let (host, port) = host_and_port(sentinels.server(1));
    let wrong = sentinels.sentinel(2);
    wrong.tell(&["REMOVE", NAME]);
    wrong.tell(&["MONITOR", NAME, &host, &port, "2"]);
    let error = refused(&format!("redis-sentinel://{}/{NAME}", wrong.address())).await;
    assert!(error.to_string().contains("it is a replica now"), "{error}");
    // The other sentinels name the new master.
    let right = format!("redis-sentinel://{},{}/{NAME}", wrong.address(), sentinels.sentinel(0).address());
    for _ in 0..10 {
        LockManager::connect(&right).await.unwrap();
    }
}

#[tokio::test]
async fn a_master_that_is_stopped_is_replaced_and_its_connection_given_up() {
    let sentinels = Sentinels::start(1);
    let manager = manager(&sentinels).await;
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    sentinels.doubt_the_servers();
    sentinels.server(0).freeze();
    let start = Instant::now();
    let guard = fenced(&manager, "k", LONG).await;
    assert!(start.elapsed() < FAILOVER, "{:?}", start.elapsed());
    assert!(sentinels.server(1).owner("p:k").is_some());
    sentinels.server(0).thaw();
    sentinels.settle();
    assert!(guard.is_valid());
    assert_eq!(sentinels.server(0).owner("p:k"), sentinels.server(1).owner("p:k"));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_plain_url_stays_with_its_server() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    eventually("both connections listen", LONG, || server.commandstats().of("subscribe") == 2).await;
    let before = server.commandstats();
    server.tell(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    let error = manager.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("READONLY"), "{error}");
    assert_eq!(server.commandstats().since(&before).of("subscribe"), 0);
    server.tell("REPLICAOF NO ONE");
}
