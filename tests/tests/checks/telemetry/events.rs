//! The events about one lock; in memory and with a paused clock where the test needs no server.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, OnBusy, cache_lock};
use tests::events::Events;
use tests::server::Server;

fn pair() -> (LockManager, LockManager) {
    let north = LockManager::builder().label("north").in_memory();
    let south = LockManager::builder().label("south").in_memory_with(&north).unwrap();
    (north, south)
}

const LONG: Duration = Duration::from_mins(10);

#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_holder_and_how_long_it_is_known() {
    let events = Events::of_this_process();
    let (north, south) = pair();
    let _guard = north.lock("p", "k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let short = Duration::from_secs(3);
    south.lock("p", "k").timeout(short).acquire().await.unwrap_err();
    let told = events.with(&["WARN", "timed out: another holder"]);
    assert_eq!(told.len(), 1, "{told:?}");
    for words in ["key=\"p:k\"", "holder=\"north\"", "waited_ms=3000", "seen_ms=3000", "left_out=0"] {
        assert!(told[0].contains(words), "{words}: {told:?}");
    }
    // A holder in this process is known since its hold began.
    north.lock("p", "k").timeout(short).acquire().await.unwrap_err();
    north.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(events.with(&["timed out"]).len(), 2, "the limit must be per manager");
    assert_eq!(events.with(&["timed out", "seen_ms=11000"]).len(), 1, "{:?}", events.with(&["timed out"]));
}

#[tokio::test(start_paused = true)]
async fn a_warning_about_one_key_is_not_repeated_for_ten_seconds() {
    let events = Events::of_this_process();
    let locks = LockManager::in_memory();
    let _guard = locks.lock("p", "k").acquire().await.unwrap();
    let _other = locks.lock("p", "other").acquire().await.unwrap();
    let fail = async |key: &str| {
        locks.lock("p", key).timeout(Duration::from_secs(1)).acquire().await.unwrap_err();
    };
    for _ in 0..9 {
        fail("k").await;
    }
    assert_eq!(events.with(&["timed out"]).len(), 1);
    fail("other").await;
    assert_eq!(events.with(&["timed out", "p:other"]).len(), 1);
    fail("k").await;
    assert_eq!(events.with(&["timed out", "key=\"p:k\"", "left_out=8"]).len(), 1, "{:?}", events.with(&["timed out"]));
}

#[tokio::test(start_paused = true)]
async fn a_single_try_that_finds_the_lock_busy_is_no_reason_to_warn() {
    let events = Events::of_this_process();
    let locks = LockManager::in_memory();
    let _guard = locks.lock("p", "k").acquire().await.unwrap();
    assert!(locks.lock("p", "k").try_acquire().await.unwrap().is_none());
    assert!(events.with(&["WARN"]).is_empty());
    assert_eq!(locks.stats().timeouts, 1);
}

#[cache_lock(prefix = "p", key = "held", manager = locks, timeout_ms = 10, on_fail = ())]
async fn skipped_when_busy(locks: &LockManager) {}

#[tokio::test(start_paused = true)]
async fn a_usual_timeout_is_no_warning() {
    let events = Events::of_this_process();
    let (north, south) = pair();
    let wait = Duration::from_millis(10);
    let _permit = north.lock("p", "pool").permits(1).acquire().await.unwrap();
    let _held = north.lock("p", "held").acquire().await.unwrap();
    north.lock("p", "job").at_least(LONG).run(async {}).await.unwrap();
    for locks in [&north, &south] {
        locks.lock("p", "pool").permits(1).timeout(wait).acquire().await.unwrap_err();
        locks.lock("p", "job").timeout(wait).acquire().await.unwrap_err();
        skipped_when_busy(locks).await;
    }
    assert!(events.with(&["WARN"]).is_empty(), "{:?}", events.with(&["WARN"]));
    for why in ["permits", "rests", "on_fail"] {
        let told = events.with(&["INFO", "timed out, as is usual", &format!("why=\"{why}\"")]);
        assert_eq!(told.len(), 2, "{why}: {:?}", events.with(&["timed out"]));
    }
    let third = LockManager::builder().in_memory_with(&north).unwrap();
    let _own = third.lock("p", "own").acquire().await.unwrap();
    for key in ["held", "own"] {
        third.lock("p", key).timeout(wait).acquire().await.unwrap_err();
    }
    for (key, words) in [("p:held", "another holder had"), ("p:own", "this process had")] {
        assert_eq!(events.with(&["WARN", "timed out", key, words]).len(), 1, "{:?}", events.with(&["WARN"]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_has_its_reason_and_says_how_long_the_lock_was_held() {
    let events = Events::of_this_process();
    let locks = LockManager::builder().drain(Duration::ZERO).in_memory();
    let expire = Duration::from_secs(2);
    // The keeper notices that the deadline has passed.
    let guard = locks.lock("p", "late").expire(expire).renew(false).acquire().await.unwrap();
    guard.lost().await;
    guard.release().await.unwrap_err();
    // A body hits its deadline.
    let body = tokio::time::sleep(LONG);
    locks.lock("p", "body").expire(expire).renew(false).run(body).await.unwrap_err();
    let held = locks.lock("p", "held").acquire().await.unwrap();
    locks.shutdown().await;
    held.release().await.unwrap_err();
    for words in
        [["p:late", "reason=\"deadline\""], ["p:body", "reason=\"deadline\""], ["p:held", "reason=\"shut_down\""]]
    {
        let told = events.with(&["WARN", "lock lost", words[0], words[1]]);
        assert_eq!(told.len(), 1, "{words:?}: {:?}", events.with(&["lock lost"]));
        assert!(told[0].contains("held_ms=1") || words[0] == "p:held", "{told:?}");
    }
    assert_eq!(events.with(&["lock lost"]).len(), 3);
    assert_eq!(locks.stats().lost, 3);
}

/// Both calls ask that the newest gets the lock, so nothing is wrong, and nothing counts as lost.
#[tokio::test]
async fn a_replaced_call_is_no_loss() {
    let events = Events::of_this_process();
    let locks = LockManager::in_memory();
    let newer = LockManager::builder().in_memory_with(&locks).unwrap();
    for (key, on_busy, level, text, lost) in [
        ("newest", OnBusy::Replace, "INFO", "replaced, as is usual", 0),
        ("plain", OnBusy::Wait, "WARN", "lock lost", 1),
    ] {
        let held = locks.lock("p", key).on_busy(on_busy).acquire().await.unwrap();
        let next = newer.lock("p", key).on_busy(OnBusy::Replace).acquire().await.unwrap();
        assert!(matches!(held.release().await, Err(LockError::Lost { forced: true, ticket: false, .. })));
        next.release().await.unwrap();
        assert_eq!(events.with(&[level, text, &format!("p:{key}")]).len(), 1, "{:?}", events.with(&[key]));
        assert_eq!(locks.stats().lost, lost);
    }
}

#[tokio::test]
async fn a_release_reports_that_the_server_no_longer_has_the_lock() {
    let events = Events::of_this_process();
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    server.tell("DEL p:k");
    guard.release().await.unwrap_err();
    assert_eq!(events.with(&["WARN", "lock lost", "key=\"p:k\"", "reason=\"not_known\""]).len(), 1);
    assert_eq!(locks.stats().lost, 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_hold_is_reported_once() {
    let events = Events::of_this_process();
    for (key, renews) in [("renewed", true), ("once", false)] {
        let locks = LockManager::builder().warn_held_for(Duration::from_secs(7)).in_memory();
        let guard = locks.lock("p", key).expire(Duration::from_mins(2)).renew(renews).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(6990)).await;
        assert!(events.with(&["held for long", key]).is_empty());
        tokio::time::sleep(Duration::from_millis(20)).await;
        let told = events.with(&["WARN", "held for long", key]);
        assert!(told.len() == 1 && told[0].contains("held_ms=70"), "{told:?}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(events.with(&["held for long", key]).len(), 1);
        guard.release().await.unwrap();
    }
    let usual = LockManager::in_memory();
    let _guard = usual.lock("p", "usual").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(events.with(&["held for long", "usual"]).is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(events.with(&["held for long", "usual"]).len(), 1);
}

/// The key looks like that of a killed replica: its token names the replica, and its lease is not renewed.
#[tokio::test]
async fn a_lock_taken_over_from_a_dead_holder_is_reported() {
    let events = Events::of_this_process();
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let token = "0123456789abcdef0123456789abcdef.1@replica-3";
    server.tell(&format!("SET p:k {token} PX 2000"));
    let guard = locks.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let told = events.with(&["INFO", "took over from a dead holder", "key=\"p:k\"", "holder=\"replica-3\""]);
    assert_eq!(told.len(), 1, "{:?}", events.with(&[]));
    assert!(!told[0].contains("0123456789"), "{told:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_released_or_deleted_is_not_taken_over_from_a_dead_holder() {
    let events = Events::of_this_process();
    let server = Server::start();
    let (north, south) =
        (LockManager::connect(&server.url()).await.unwrap(), LockManager::connect(&server.url()).await.unwrap());
    let short = Duration::from_millis(1600);
    let guard = north.lock("p", "k").expire(short).acquire().await.unwrap();
    let waiting = tokio::spawn(south.lock("p", "k").timeout(LONG).acquire());
    // Longer than the lease, which is renewed.
    tokio::time::sleep(short * 2).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    server.tell("SET p:k anything PX 60000");
    let waiting = tokio::spawn(south.lock("p", "k").timeout(LONG).acquire());
    tests::patience::eventually("it waits", LONG, || server.keys().contains_key("{p:k}:queue")).await;
    server.tell("DEL p:k");
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(events.with(&["took over"]).is_empty(), "{:?}", events.with(&["took over"]));
    assert_eq!(south.stats().hand_offs, 1, "{:?}", south.stats());
}
