//! Locks on a majority of independent servers: what happens when some of them, or most, are not there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::time::{Duration, Instant};

use lock_runtime::{Builder, LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::Proxy;
use tests::quorum::Servers;

const LONG: Duration = Duration::from_secs(20);
/// Far less than a command to a server that is stopped takes, which is half a second, or the wait for a push that does not
/// come, which is a second.
const QUICK: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_millis(900);
/// The longest that the remains of an acquire block others.
const ORPHAN: Duration = Duration::from_secs(3);
async fn manager(servers: &Servers) -> LockManager {
    LockManager::connect(&servers.url()).await.unwrap()
}

/// With a short time until a server that restarted may vote again.
async fn forgiving(url: &str) -> LockManager {
    let short = Duration::from_secs(2);
    LockManager::builder().url(url).default_expire(short).max_lease(short).connect().await.unwrap()
}

async fn held(manager: &LockManager, key: &str) -> LockGuard {
    manager.lock("p", key).timeout(LONG).acquire().await.unwrap()
}

async fn fenced(manager: &LockManager, key: &str) -> u64 {
    let guard = manager.lock("p", key).timeout(LONG).fenced(true).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap();
    guard.release().await.unwrap();
    token.into()
}

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
        ("redlock://a,,b", "can't be read"),
        ("redlock://", "needs 3 servers"),
    ] {
        let error = refused(builder().url(url)).await;
        assert!(error.contains(told), "{url}: {error}");
    }
    let error = refused(builder().quorum(["redis://a", "redis-sentinel://b/name", "redis://c"])).await;
    assert!(error.contains("not one server"), "{error}");
    let three = ["redis://a", "redis://b", "redis://c"];
    let error = refused(builder().quorum(three).min_replicas(1, Duration::from_millis(100))).await;
    assert!(error.contains("min_replicas"), "{error}");
    let error = refused(builder().quorum(three).max_lease(Duration::from_secs(1))).await;
    assert!(error.contains("default_expire") && error.contains("max_lease"), "{error}");
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

/// Of rounds on a machine that may have more to do.
fn median(rounds: &mut [Duration]) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

/// Locks, waits, renews and releases while one server is away, and no step takes the time of one that does not answer.
async fn works_without(servers: &Servers, away: usize, one: &LockManager, two: &LockManager) {
    let mut rounds = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let guard = held(one, "quick").await;
        guard.extend(Duration::from_secs(30)).await.unwrap();
        guard.release().await.unwrap();
        rounds.push(start.elapsed());
    }
    assert!(median(&mut rounds) < QUICK, "{rounds:?}");
    assert!(fenced(one, "numbered").await < fenced(two, "numbered").await);
    let alive = (away + 1) % 3;
    rounds.clear();
    for _ in 0..5 {
        let guard = held(one, "passed").await;
        let waiting = tokio::spawn({
            let two = two.clone();
            async move { held(&two, "passed").await }
        });
        let is_queued = || {
            [alive, (away + 2) % 3].iter().any(|number| servers.server(*number).keys().contains_key("{p:passed}:queue"))
        };
        eventually("the other one waits", LONG, is_queued).await;
        let start = Instant::now();
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        rounds.push(start.elapsed());
    }
    assert!(median(&mut rounds) < QUICK, "{rounds:?}");
}

#[tokio::test]
async fn a_killed_minority_is_not_missed() {
    for dead in 0..3 {
        let mut servers = Servers::start(3);
        let (one, two) = (manager(&servers).await, manager(&servers).await);
        let before = held(&one, "before").await;
        servers.server_mut(dead).kill();
        works_without(&servers, dead, &one, &two).await;
        before.release().await.unwrap();
        // Nor by managers that start without it.
        let start = Instant::now();
        let late = manager(&servers).await;
        held(&late, "late").await.release().await.unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_stopped_minority_is_not_missed() {
    for stopped in 0..3 {
        let servers = Servers::start(3);
        let (one, two) = (manager(&servers).await, manager(&servers).await);
        let before = held(&one, "before").await;
        servers.server(stopped).freeze();
        works_without(&servers, stopped, &one, &two).await;
        before.release().await.unwrap();
        let start = Instant::now();
        let late = manager(&servers).await;
        held(&late, "late").await.release().await.unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        servers.server(stopped).thaw();
    }
}

/// Without a majority nobody gets a lock, and what is held ends at its deadline.
async fn nobody_locks_without_a_majority(mut servers: Servers, fall: impl Fn(&mut Servers, usize)) {
    let manager = manager(&servers).await;
    let (lasts, expire) = (held(&manager, "lasts").await, Duration::from_secs(2));
    let ends = manager.lock("p", "ends").expire(expire).renew(true).acquire().await.unwrap();
    fall(&mut servers, 1);
    fall(&mut servers, 2);
    for timeout in [Duration::ZERO, Duration::from_millis(700)] {
        for key in ["free", "lasts"] {
            let start = Instant::now();
            let error = manager.lock("q", key).timeout(timeout).acquire().await.unwrap_err();
            assert!(matches!(error, LockError::Backend { .. }), "{timeout:?}: {error:?}");
            assert!(
                start.elapsed() < timeout + Duration::from_millis(100) + NOISE,
                "{timeout:?}: {:?}",
                start.elapsed()
            );
        }
    }
    let start = Instant::now();
    tokio::time::timeout(LONG, ends.lost()).await.unwrap();
    assert!(start.elapsed() < expire + NOISE);
    assert!(lasts.is_valid());
    let error = lasts.release().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    eventually("nothing is left on the one that lives", ORPHAN + NOISE, || servers.server(0).keys().is_empty()).await;
}

#[tokio::test]
async fn a_killed_majority_is_told_in_time_and_ends_all_holds() {
    nobody_locks_without_a_majority(Servers::start(3), |servers, number| servers.server_mut(number).kill()).await;
}

#[tokio::test]
async fn a_stopped_majority_is_told_in_time_and_ends_all_holds() {
    nobody_locks_without_a_majority(Servers::start(3), |servers, number| servers.server(number).freeze()).await;
}

#[tokio::test]
async fn a_lock_that_a_minority_still_keeps_is_not_called_busy_while_the_majority_is_down() {
    let mut servers = Servers::start(3);
    let (holder, other) = (manager(&servers).await, manager(&servers).await);
    let guard = held(&holder, "k").await;
    servers.server_mut(1).kill();
    servers.server_mut(2).kill();
    let error = other.lock("p", "k").timeout(Duration::from_millis(500)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains(&servers.server(2).address()), "{error}");
    drop(guard);
}

/// Whoever waits does so in the first server's queue, which goes on.
async fn a_task_that_waits_is_told_of(fall: impl Fn(&mut Servers, usize)) {
    let mut servers = Servers::start(3);
    let (holder, other) = (manager(&servers).await, manager(&servers).await);
    let guard = held(&holder, "k").await;
    let waiting = tokio::spawn(async move { other.lock("p", "k").timeout(Duration::from_secs(4)).acquire().await });
    eventually("the other one waits", LONG, || servers.server(0).keys().contains_key("{p:k}:queue")).await;
    fall(&mut servers, 1);
    fall(&mut servers, 2);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains(&servers.server(2).address()), "{error}");
    drop(guard);
}

#[tokio::test]
async fn a_task_that_waits_is_told_when_a_majority_dies() {
    a_task_that_waits_is_told_of(|servers, number| servers.server_mut(number).kill()).await;
}

#[tokio::test]
async fn a_task_that_waits_is_told_when_a_majority_stops() {
    a_task_that_waits_is_told_of(|servers, number| servers.server(number).freeze()).await;
}

#[tokio::test]
async fn what_a_minority_granted_is_taken_back() {
    let servers = Servers::start(3);
    let (one, two) = (manager(&servers).await, manager(&servers).await);
    // Another client of the two servers has them.
    servers.server(1).tell("SET p:k other PX 3000");
    servers.server(2).tell("SET p:k other PX 3000");
    assert!(one.lock("p", "k").try_acquire().await.unwrap().is_none());
    eventually("the claim is taken back", SOON, || servers.owners("p:k")[0].is_none()).await;
    let guard = held(&two, "k").await;
    guard.release().await.unwrap();
    eventually("nothing is left", SOON, || servers.owners("p:k").iter().all(Option::is_none)).await;
}

#[tokio::test]
async fn the_token_of_a_refused_claim_is_not_used_again() {
    let servers = Servers::start(3);
    let (one, two) = (manager(&servers).await, manager(&servers).await);
    let guard = held(&one, "k").await;
    let waiting = tokio::spawn(async move { held(&two, "k").await });
    eventually("the other one waits", LONG, || servers.server(0).keys().contains_key("{p:k}:queue")).await;
    // What a server that was slow to grant the claim takes back must not be what waits there now.
    let queue: Vec<String> = servers.server(0).ask("LRANGE {p:k}:queue 0 -1");
    assert!(queue.len() == 1 && queue[0].contains(".2@"), "{queue:?}");
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn what_is_granted_after_its_asker_gave_up_is_taken_back() {
    let servers = Servers::start(3);
    let manager = manager(&servers).await;
    servers.server(1).freeze();
    servers.server(2).freeze();
    for key in ["a", "b", "c"] {
        assert!(manager.lock("p", key).timeout(Duration::from_millis(50)).acquire().await.is_err());
    }
    servers.server(1).thaw();
    servers.server(2).thaw();
    for number in 0..3 {
        eventually("nothing is left", ORPHAN + NOISE, || servers.server(number).keys().is_empty()).await;
    }
}

#[tokio::test]
async fn a_lock_is_passed_to_another_manager_by_push() {
    let servers = Servers::start(5);
    let (one, two) = (manager(&servers).await, manager(&servers).await);
    let mut rounds = Vec::new();
    for _ in 0..30 {
        let guard = held(&one, "k").await;
        let waiting = tokio::spawn({
            let two = two.clone();
            async move { held(&two, "k").await }
        });
        eventually("the other one waits", LONG, || servers.server(0).keys().contains_key("{p:k}:queue")).await;
        let start = Instant::now();
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        rounds.push(start.elapsed());
        guard.release().await.unwrap();
    }
    assert!(median(&mut rounds) < QUICK && rounds.last() < Some(&SOON), "{rounds:?}");
}

/// The classical failure: a lock is granted by B and C, since its holder does not reach A; then C forgets it in a restart, and
/// two of three are free.
#[tokio::test]
async fn a_server_that_restarted_without_its_data_helps_nobody_to_a_second_hold() {
    let mut servers = Servers::start(3);
    let proxy = Proxy::before(servers.server(0));
    let urls = [proxy.url(), servers.server(1).url(), servers.server(2).url()];
    let holder = LockManager::builder().quorum(urls).connect().await.unwrap();
    let other = manager(&servers).await;
    drop(proxy);
    let guard = held(&holder, "k").await;
    eventually("it is confirmed", LONG, || guard.remaining() > Duration::from_secs(20)).await;
    servers.server_mut(2).kill();
    servers.server_mut(2).restart();
    assert_eq!(servers.owners("p:k").iter().flatten().count(), 1);
    let late = manager(&servers).await;
    for manager in [&other, &late] {
        for timeout in [Duration::ZERO, Duration::from_millis(500)] {
            assert!(manager.lock("p", "k").timeout(timeout).acquire().await.is_err());
            // What is free is free to all who reach the two that may vote.
            held(manager, "free").await.release().await.unwrap();
        }
    }
    assert!(guard.is_valid());
    servers.server_mut(1).kill();
    let error = other.lock("p", "free").timeout(Duration::from_millis(500)).acquire().await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains(&servers.server(2).address()) && told.contains("no vote for another"), "{told}");
}

#[tokio::test]
async fn a_server_that_restarted_votes_again_when_every_lease_it_forgot_is_over() {
    let mut servers = Servers::start(3);
    let manager = forgiving(&servers.url()).await;
    held(&manager, "k").await.release().await.unwrap();
    servers.server_mut(2).kill();
    servers.server_mut(2).restart();
    servers.server_mut(1).kill();
    let start = Instant::now();
    held(&manager, "k").await.release().await.unwrap();
    assert!(start.elapsed() > Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_hold_goes_on_and_is_released_when_a_minority_forgot_it() {
    let mut servers = Servers::start(3);
    let manager = manager(&servers).await;
    let guard = manager.lock("p", "k").expire(Duration::from_secs(1)).renew(true).acquire().await.unwrap();
    servers.server_mut(0).kill();
    servers.server_mut(0).restart();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert!(servers.owners("p:k").iter().all(Option::is_none));
}

#[tokio::test]
async fn a_hold_that_a_majority_forgot_is_lost() {
    let mut servers = Servers::start(3);
    let manager = manager(&servers).await;
    let guard = held(&manager, "k").await;
    for number in [0, 1] {
        servers.server_mut(number).kill();
        servers.server_mut(number).restart();
    }
    tokio::time::timeout(ORPHAN, guard.lost()).await.unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn fencing_tokens_grow_while_servers_die_and_return() {
    let mut servers = Servers::start(3);
    let (one, two) = (forgiving(&servers.url()).await, forgiving(&servers.url()).await);
    let mut last = 0;
    for dead in [0, 1, 2, 0] {
        servers.server_mut(dead).kill();
        for _ in 0..10 {
            for manager in [&one, &two] {
                let token = fenced(manager, "k").await;
                assert!(token > last, "{token} after {last}");
                last = token;
            }
        }
        servers.server_mut(dead).restart();
    }
}
