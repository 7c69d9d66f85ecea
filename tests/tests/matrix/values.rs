//! A lock's key has a value of somebody else: another owner's token, or data that is no lock.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LockRequest, OnBusy};
use tests::events::Events;
use tests::patience::{NOISE, eventually};
use tests::server::{Kind, Server};
use tokio::time::sleep;

use crate::{LATE, LONG, TIMEOUT, assert_granted_soon, manager, wait_until_confirmed, wait_until_lost};

/// How a lock is held.
#[derive(Clone, Copy, Debug)]
enum Share {
    Alone,
    Read,
    Permit,
}

const SHARES: [Share; 3] = [Share::Alone, Share::Read, Share::Permit];

impl Share {
    fn of(self, request: LockRequest) -> LockRequest {
        match self {
            Self::Alone => request,
            Self::Read => request.read(),
            Self::Permit => request.permits(2),
        }
    }
}

#[tokio::test]
async fn a_late_release_never_frees_the_lock_of_another() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let request = || north.lock("p", "k").expire(Duration::from_millis(100)).renew(false);
    let (one, two) = (request().acquire().await.unwrap(), south);
    wait_until_lost(&one).await;
    let next = two.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let token = server.owner("p:k");
    assert!(token.is_some());
    assert!(one.release().await.unwrap_err().is_lost());
    assert_eq!(server.owner("p:k"), token);
    next.release().await.unwrap();
    // A dropped guard must not free it either.
    let one = request().acquire().await.unwrap();
    wait_until_lost(&one).await;
    let next = two.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let token = server.owner("p:k");
    drop(one);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(server.owner("p:k"), token);
    assert!(next.is_valid());
}

#[tokio::test]
async fn row_20_a_foreign_value_without_an_end_is_respected_and_reported() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("SET p:k somebody");
    assert!(manager.lock("p", "k").try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    let error = manager.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    let LockError::Timeout { holder, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(holder.as_deref(), Some("another client, without an expiry"));
    assert!(!format!("{error} {error:?}").contains("somebody"), "a foreign token must stay secret, too: {error:?}");
    let newest = manager.lock("p", "k").timeout(TIMEOUT).on_busy(OnBusy::Replace);
    assert!(newest.acquire().await.unwrap_err().is_timeout(), "it may be an application's data");
    assert_eq!(server.owner("p:k").as_deref(), Some("somebody"));
    assert_eq!(server.ask::<i64>("PTTL p:k"), -1);
    server.tell("DEL p:k");
    assert_granted_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn row_20_a_key_of_another_type_is_reported_and_left_alone() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("RPUSH p:k a b");
    for timeout in [Duration::ZERO, LONG] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        assert!(error.to_string().contains("`p:k`") && error.to_string().contains("WRONGTYPE"), "{error}");
        // Waiting can't help, because the value never becomes a lock.
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    assert_eq!(server.ask::<Vec<String>>("LRANGE p:k 0 -1"), ["a", "b"]);
    // Other keys still work.
    manager.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
}

/// Every type of value, with every kind of request.
#[tokio::test]
async fn a_value_of_any_other_type_is_named_and_left_as_it_is() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    for (make, look) in [
        ("RPUSH p:k a b", "LRANGE p:k 0 -1"),
        ("SADD p:k a", "SMEMBERS p:k"),
        ("HSET p:k a b", "HGETALL p:k"),
        ("ZADD p:k 1 a", "ZRANGE p:k 0 -1"),
        ("XADD p:k 1-1 a b", "XRANGE p:k - +"),
    ] {
        server.tell(make);
        let before: redis::Value = server.ask(look);
        let request = || manager.lock("p", "k").timeout(TIMEOUT);
        for error in [
            request().acquire().await.unwrap_err(),
            request().fenced(true).acquire().await.unwrap_err(),
            request().try_acquire().await.unwrap_err(),
            request().run(async { panic!("the body runs without a lock") }).await.unwrap_err(),
        ] {
            assert!(matches!(error, LockError::Backend { .. }), "{make}: {error:?}");
            assert!(error.to_string().contains("`p:k`") && error.to_string().contains("WRONGTYPE"), "{make}: {error}");
        }
        // The withdrawals are done by now, or under way.
        manager.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(server.ask::<redis::Value>(look), before, "{make}");
        assert_eq!(server.ask::<i64>("PTTL p:k"), -1, "{make}");
        server.tell("DEL p:k");
    }
    assert_granted_soon(&manager).await.release().await.unwrap();
}

/// A hold whose key was overwritten is lost, for all kinds of holds and values, and the new value is left alone.
#[tokio::test]
async fn row_19_a_lock_that_was_overwritten_is_lost_and_what_is_there_stays() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let lease = Duration::from_millis(900);
    for (overwrite, look) in [("SET p:k somebody", "GET p:k"), ("RPUSH p:k a", "LRANGE p:k 0 -1")] {
        for share in SHARES {
            for how in ["release", "drop", "run", "extend"] {
                let case = format!("{overwrite}, {share:?}, {how}");
                let request = || share.of(manager.lock("p", "k").expire(lease));
                let put = || {
                    server.tell("DEL p:k");
                    server.tell(overwrite);
                };
                if how == "run" {
                    let start = Instant::now();
                    let body = async {
                        sleep(Duration::from_millis(50)).await;
                        put();
                        sleep(LONG).await;
                    };
                    let error = request().run(body).await.unwrap_err();
                    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{case}: {error:?}");
                    // The next renewal notices it, well before the hold's deadline.
                    assert!(start.elapsed() < lease / 3 + 2 * LATE + NOISE, "{case}: {:?}", start.elapsed());
                } else {
                    let guard = request().fenced(true).acquire().await.unwrap();
                    wait_until_confirmed(&guard, lease / 2).await;
                    put();
                    match how {
                        "release" => assert!(guard.release().await.unwrap_err().is_lost(), "{case}"),
                        "extend" => assert!(guard.extend(LONG).await.unwrap_err().is_lost(), "{case}"),
                        _ => drop(guard),
                    }
                }
                let before: redis::Value = server.ask(look);
                // By then the release of the dropped guard has its reply.
                sleep(Duration::from_millis(100)).await;
                assert_eq!(server.ask::<redis::Value>(look), before, "{case}");
                assert_eq!(server.ask::<i64>("PTTL p:k"), -1, "{case}");
                server.tell("DEL p:k");
            }
        }
    }
}

/// Somebody removed the expiry of a lock's key, or copied the key without its expiry.
#[tokio::test]
async fn row_71_a_held_lock_without_an_end_gets_one_at_its_next_renewal() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let lease = Duration::from_millis(900);
    for share in SHARES {
        let guard = share.of(north.lock("p", "k").expire(lease)).acquire().await.unwrap();
        wait_until_confirmed(&guard, lease / 2).await;
        // The next renewal may happen before the test reads the keys.
        let is_taken = ["p:k", "{p:k}:shared"].map(|key| server.ask::<i64>(&format!("PERSIST {key}")) == 1);
        assert!(is_taken[0], "{share:?}");
        let ends = || ["p:k", "{p:k}:shared"].iter().all(|key| server.ask::<i64>(&format!("PTTL {key}")) != -1);
        eventually("it has an expiry again", lease / 3 + LATE + NOISE, ends).await;
        assert!(guard.is_valid(), "{share:?}");
        guard.release().await.unwrap();
        assert!(south.lock("p", "k").try_acquire().await.unwrap().is_some(), "{share:?}");
        eventually("it is released", LATE + NOISE, || server.owner("p:k").is_none()).await;
    }
}

/// Another client's value at a helper key breaks waiting, not the lock.
#[tokio::test]
async fn a_helper_key_of_another_type_is_named_and_left_alone() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    server.tell("SET {p:k}:queue x");
    server.tell("RPUSH {p:k}:fence x");
    let error = north.lock("p", "k").fenced(true).acquire().await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let guard = assert_granted_soon(&north).await;
    let start = Instant::now();
    let error = south.lock("p", "k").timeout(LONG).acquire().await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // The other client's values are still there, and the lock is released.
    guard.release().await.unwrap();
    assert_eq!(server.ask::<String>("GET {p:k}:queue"), "x");
    assert_eq!(server.ask::<Vec<String>>("LRANGE {p:k}:fence 0 -1"), ["x"]);
    assert_eq!(server.owner("p:k"), None);
}

/// Plays every way to end a hold, also when the helper keys are overwritten during the hold.
#[tokio::test]
async fn row_52_a_lock_is_free_when_its_owner_releases_it_whatever_is_at_its_helper_keys() {
    let server = Server::start();
    let events = Events::of_this_process();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let lease = Duration::from_secs(20);
    for (name, make) in
        [("queue", "SET {p:k}:queue x"), ("queue", "HSET {p:k}:queue a b"), ("fence", "RPUSH {p:k}:fence x")]
    {
        for how in ["release", "drop", "run", "overwritten"] {
            if how != "overwritten" {
                server.tell(make);
            }
            let request = north.lock("p", "k").expire(lease).timeout(TIMEOUT);
            let released = if how == "run" {
                request.run(sleep(Duration::from_millis(60))).await.unwrap();
                Instant::now()
            } else {
                // A free lock is granted, also with a fencing token, which the plain claim does not draw.
                let fenced = how == "overwritten" || name == "queue";
                let guard = request.fenced(fenced).acquire().await.unwrap();
                wait_until_confirmed(&guard, Duration::from_secs(15)).await;
                if fenced {
                    server.tell(&format!("DEL {{p:k}}:{name}"));
                    server.tell(make);
                }
                let released = Instant::now();
                if how == "drop" {
                    drop(guard);
                } else {
                    guard.release().await.unwrap();
                }
                released
            };
            eventually(&format!("{make}: it is free after {how}"), LATE + NOISE, || server.owner("p:k").is_none())
                .await;
            assert!(released.elapsed() < Duration::from_secs(1));
            // The next request gets it at once.
            assert!(south.lock("p", "k").try_acquire().await.unwrap().is_some(), "{make}, {how}");
            eventually("it is released", LATE + NOISE, || server.owner("p:k").is_none()).await;
            server.tell("DEL {p:k}:queue");
            server.tell("DEL {p:k}:fence");
        }
    }
    assert!(!events.with(&["WARN", "queue can't be used", "p:k", "WRONGTYPE"]).is_empty());
}

/// A server without a command that the release script needs.
#[tokio::test]
async fn row_52_a_lock_is_free_when_its_owner_releases_it_on_a_server_without_del() {
    let server = Server::with(&["--rename-command", "DEL", ""]);
    let north = manager(&server.url()).await;
    for is_dropped in [false, true] {
        let guard = north.lock("p", "k").expire(LONG * 2).acquire().await.unwrap();
        wait_until_confirmed(&guard, LONG).await;
        if is_dropped {
            drop(guard);
        } else {
            let outcome = guard.release().await;
            let is_needed = server.release_command().is_none();
            assert_eq!(matches!(outcome, Err(LockError::Backend { .. })), is_needed, "{outcome:?}");
        }
        eventually("it is free", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    }
}

/// The server may accept in a second what it refuses now.
#[tokio::test]
async fn row_52_a_release_that_was_refused_for_good_is_repeated_until_the_lease_is_over() {
    let server = Server::start();
    server.tell("ACL SETUSER least on >canary-7f3a ~* &cache_lock:* +@all");
    let north = manager(&server.url().replace("redis://", "redis://least:canary-7f3a@")).await;
    let set_rights = |sign: char| {
        let rights = ["EVAL", "EVALSHA"].into_iter().chain(server.release_command());
        let words: Vec<_> = rights.map(|right| format!("{sign}{right}")).collect();
        server.tell(&format!("ACL SETUSER least {}", words.join(" ")));
    };
    for is_dropped in [false, true] {
        let guard = north.lock("p", "k").expire(LONG * 2).acquire().await.unwrap();
        wait_until_confirmed(&guard, LONG).await;
        set_rights('-');
        if is_dropped {
            drop(guard);
        } else {
            let error = guard.release().await.unwrap_err();
            assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        }
        sleep(Duration::from_millis(500)).await;
        assert!(server.owner("p:k").is_some());
        set_rights('+');
        eventually("it is free", Duration::from_secs(1) + LATE + NOISE, || server.owner("p:k").is_none()).await;
    }
}

/// Another client's value at the list of shared leases, or at the record of the first waiter, blocks nothing.
#[tokio::test]
async fn row_52_a_shared_lock_is_free_when_its_owner_releases_it_whatever_is_at_its_helper_keys() {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    for share in [Share::Read, Share::Permit] {
        for name in ["shared", "queue", "head", "fence"] {
            for how in ["release", "drop"] {
                let case = format!("{share:?}, {name}, {how}");
                let request = share.of(north.lock("p", "k").expire(Duration::from_secs(20)));
                let guard = request.acquire().await.unwrap();
                wait_until_confirmed(&guard, Duration::from_secs(15)).await;
                server.tell(&format!("DEL {{p:k}}:{name}"));
                server.tell(&format!("RPUSH {{p:k}}:{name} x"));
                let released = Instant::now();
                if how == "drop" {
                    drop(guard);
                } else {
                    // Without the list there are no shared leases.
                    let outcome = guard.release().await;
                    assert_eq!(outcome.is_ok(), name != "shared", "{case}: {outcome:?}");
                    assert!(outcome.err().is_none_or(|error| error.is_lost()), "{case}");
                }
                eventually(&case, LATE + NOISE, || server.owner("p:k").is_none()).await;
                assert!(released.elapsed() < Duration::from_secs(1), "{case}");
                // The next request of any kind gets it at once.
                for next in SHARES {
                    let guard = next.of(south.lock("p", "k").timeout(Duration::ZERO)).acquire().await;
                    guard.unwrap_or_else(|error| panic!("{case}, {next:?}: {error}")).release().await.unwrap();
                }
                server.tell(&format!("DEL {{p:k}}:{name}"));
            }
        }
    }
}

/// Another client may use any word as its lock's value.
#[tokio::test]
async fn row_20_a_foreign_value_that_is_a_word_of_the_protocol_is_respected() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    for word in ["shared", "shared|forced", "forced", "|forced", "arm", "0", "1", "-1", "cache_lock", "grant", "false"]
    {
        server.tell(&format!("SET p:k {word} PX 60000"));
        for share in SHARES {
            let error = share.of(manager.lock("p", "k").timeout(TIMEOUT / 3)).acquire().await.unwrap_err();
            assert!(error.is_timeout(), "{word}, {share:?}: {error:?}");
            assert!(share.of(manager.lock("p", "k")).try_acquire().await.unwrap().is_none(), "{word}, {share:?}");
        }
        assert!(manager.is_locked("p", &"k").await.unwrap(), "{word}");
        assert_eq!(server.owner("p:k").as_deref(), Some(word));
    }
    server.tell("SET p:k shared PX 100");
    assert_granted_soon(&manager).await.release().await.unwrap();
}

/// Valkey deletes the lock with a command, before any script reads the queue.
#[tokio::test]
async fn a_release_is_done_although_the_queue_is_of_another_type() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::of(kind, &[]);
        let guard = manager(&server.url()).await.lock("p", "k").acquire().await.unwrap();
        server.tell("SET {p:k}:queue x");
        let released = guard.release().await;
        assert!(released.is_ok() && server.owner("p:k").is_none(), "{kind:?}: {released:?}");
    }
}

/// Writes a large application value, such as a page or a picture, to the key of a lock.
fn put_large(server: &Server, key: &str, bytes: usize) {
    server.tell(&format!("SET {key} x"));
    server.tell(&format!("SETRANGE {key} {} x", bytes - 1));
}

/// The number of bytes that the server has sent to all clients.
fn sent_by(server: &Server) -> usize {
    let stats: String = server.ask("INFO stats");
    let sent = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).unwrap();
    sent.parse().unwrap()
}

/// A server closes a connection whose output buffer exceeds its limit, and all locks share that connection.
#[tokio::test]
async fn row_20_a_value_of_any_size_costs_other_locks_nothing() {
    for kind in [Kind::Redis, Kind::Valkey] {
        for megabytes in [5, 40] {
            let server = Server::of(kind, &[]);
            let (locks, others) = (manager(&server.url()).await, manager(&server.url()).await);
            let kept = locks.lock("kept", "k").expire(Duration::from_secs(1)).acquire().await.unwrap();
            let bytes = megabytes << 20;
            let before = sent_by(&server);
            meet_large(&server, &locks, &others, bytes).await;
            let sent = sent_by(&server) - before;
            assert!(sent < bytes / 2, "{kind:?}: {sent} bytes");
            for locks in [&locks, &others] {
                assert_eq!(locks.stats().reconnects, 0, "{kind:?}, {megabytes} MB");
            }
            assert!(kept.is_valid(), "{kind:?}, {megabytes} MB");
            kept.release().await.unwrap();
        }
    }
}

/// Uses every verb on a key with a value of this size, together with another lock each time.
async fn meet_large(server: &Server, locks: &LockManager, others: &LockManager, bytes: usize) {
    let others_work = async || {
        for locks in [locks, others] {
            locks.lock("other", "k").acquire().await.unwrap().release().await.unwrap();
        }
    };
    put_large(server, "p:k", bytes);
    let request = || locks.lock("p", "k").timeout(TIMEOUT);
    for _ in 0..3 {
        assert!(request().try_acquire().await.unwrap().is_none());
        for request in [request(), request().fenced(true), request().read(), request().permits(2)] {
            assert!(request.acquire().await.unwrap_err().is_timeout());
            others_work().await;
        }
    }
    assert!(request().on_busy(OnBusy::Replace).acquire().await.unwrap_err().is_timeout());
    assert!(locks.lock_all("p", ["a", "k"]).timeout(TIMEOUT).acquire().await.unwrap_err().is_timeout());
    assert!(locks.inspect("p", "k").await.unwrap().is_some());
    others_work().await;
    assert!(locks.force_release("p", "k").await.unwrap());
    assert_eq!(server.ask::<i64>("EXISTS p:k"), 0);
    // Overwrite a lock that is held.
    for share in SHARES {
        for how in ["release", "drop", "extend", "give", "rest", "renew"] {
            let request = share.of(locks.lock("p", "k").expire(Duration::from_millis(900)));
            let request = if how == "rest" { request.at_least(Duration::from_secs(2)) } else { request };
            let guard = request.acquire().await.unwrap();
            let waiting = others.lock("p", "k").timeout(TIMEOUT / 2).acquire();
            let waiting = tokio::spawn(async move { waiting.await.map(drop) });
            crate::wait_until_queued(server).await;
            put_large(server, "p:k", bytes);
            match how {
                "release" => assert!(guard.release().await.unwrap_err().is_lost(), "{share:?}"),
                "rest" => drop(guard.release().await),
                "extend" => assert!(guard.extend(LONG).await.unwrap_err().is_lost(), "{share:?}"),
                "give" => drop(guard.into_ticket(LONG).await),
                "renew" => wait_until_lost(&guard).await,
                _ => drop(guard),
            }
            others_work().await;
            assert!(waiting.await.unwrap().unwrap_err().is_timeout(), "{share:?}, {how}");
            others_work().await;
            assert_eq!(server.ask::<usize>("STRLEN p:k"), bytes, "{share:?}, {how}");
            server.tell("DEL p:k");
        }
    }
}
