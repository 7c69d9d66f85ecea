//! Single scenes on a quorum.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use super::super::network::Conditions;
use super::super::process::connect_to;
use super::super::servers::Servers;
use super::super::time::Simulated;
use super::super::world::Plan;
use super::plan;
use crate::mutants::{Mutant, Seeded};
use crate::{LockError, LockGuard, LockManager};

const LONG: Duration = Duration::from_secs(20);

/// Three servers at this distance, a round trip in milliseconds.
fn quorum(round_trip: u64) -> (Simulated, Servers) {
    quorum_of(0, round_trip)
}

fn quorum_of(seed: u64, round_trip: u64) -> (Simulated, Servers) {
    let random = &mut Rng::with_seed(seed);
    let plan = Plan { servers: 3, round_trip, ..plan(random) };
    (Simulated::begin(), Servers::of(&plan, None, random))
}

/// Connects to all servers, with both connections of the manager.
async fn connect(servers: &Servers, name: &str) -> LockManager {
    let locks = connect_to(servers, name);
    let guard = locks.lock("warm", name).timeout(LONG).expire(LONG).acquire().await.unwrap();
    while guard.remaining() < LONG / 2 {
        sleep(Duration::from_millis(10)).await;
    }
    guard.release().await.unwrap();
    sleep(LONG).await;
    locks
}

/// On how many servers a key is locked.
fn count(servers: &Servers, key: &str) -> usize {
    let is_locked = |keys: Vec<(String, _)>| keys.iter().any(|(name, _)| name == key);
    servers.all().iter().filter(|network| is_locked(network.server(ModelServer::snapshot))).count()
}

/// Whenever the release happens: the table "What it costs" in docs/topologies.md.
#[tokio::test(start_paused = true)]
async fn a_free_lock_goes_to_the_next_asker_within_the_longest_pause() {
    let mut slowest = Duration::ZERO;
    for wait in (2000..2600).step_by(20) {
        let (_time, servers) = quorum(0);
        let (one, other) = (connect(&servers, "p").await, connect(&servers, "q").await);
        let guard = one.lock("k", &0).timeout(LONG).acquire().await.unwrap();
        let waiter = wait_for(&other);
        sleep(Duration::from_millis(wait)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap();
        slowest = slowest.max(released.elapsed());
        guard.release().await.unwrap();
    }
    assert!(slowest < Duration::from_millis(260), "{slowest:?}");
}

fn wait_for(locks: &LockManager) -> JoinHandle<LockGuard> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.lock("k", &0).timeout(LONG).acquire().await.unwrap() })
}

/// A draw takes two round trips. Its task does not count as late during that time.
#[tokio::test(start_paused = true)]
async fn a_fenced_lock_is_granted_from_far_away() {
    let (_time, servers) = quorum(400);
    let locks = connect(&servers, "p").await;
    let begin = Instant::now();
    let had = locks.lock("k", &0).fenced(true).timeout(LONG).acquire().await;
    assert!(had.is_ok() && begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// A single try has half a second. Because it overtook a release of its own process, it has no time left for a fencing token.
#[tokio::test(start_paused = true)]
async fn a_fenced_try_with_too_little_time_after_its_own_release_fails_as_busy() {
    for (bug, is_told) in [(None, true), (Some(Mutant::OwnReleaseForgotten), false)] {
        let (mut granted, mut refused) = (0, 0);
        for seed in 0..16 {
            let (_time, servers) = quorum_of(seed, 110);
            let locks = connect(&servers, "p").await;
            let _seeded = Seeded::begin(bug);
            servers.set_conditions(Conditions { delay: Duration::from_millis(2), ..Conditions::default() });
            drop(locks.lock("k", &0).timeout(LONG).acquire().await.unwrap());
            // The keeper sends the release. Before that the try would take over the lease.
            while locks.core().table().get("k:0").is_some_and(|slot| slot.has_lease()) {
                yield_now().await;
            }
            match locks.lock("k", &0).fenced(true).try_acquire().await {
                Ok(Some(_)) => granted += 1,
                Ok(None) => refused += 1,
                Err(error) => assert!(!is_told, "{error}"),
            }
        }
        assert_eq!((refused > 0, granted + refused == 16), (is_told, is_told), "{bug:?}: {granted} {refused}");
    }
}

/// In front of it are a try without an answer and a task that is not polled.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_late_tasks_reports_a_silent_quorum() {
    let (_time, servers) = quorum(0);
    let locks = connect(&servers, "p").await;
    servers.freeze(LONG);
    let kept = || Box::pin(async { locks.lock("k", &0).timeout(LONG).acquire().await });
    let (mut asks, mut waits) = (kept(), kept());
    assert!(asks.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
    let refused = locks.lock("k", &0).timeout(Duration::from_millis(580)).acquire().await;
    assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
}

/// The first of them does not read the answer to its try. The second was late before, so others give it time. Together they get the time
/// that one of them gets (rule L7).
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_two_late_tasks_waits_no_longer_than_behind_one() {
    let (_time, servers) = quorum(0);
    let locks = connect(&servers, "p").await;
    let held = locks.lock("k", &0).acquire().await.unwrap();
    let kept = || Box::pin(async { locks.lock("k", &0).timeout(LONG).acquire().await });
    let (mut tries, mut waits) = (kept(), kept());
    assert!(tries.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
    drop(held);
    let request = locks.lock("k", &0).timeout(LONG).expire(Duration::from_secs(1)).renew(false);
    let held = request.acquire().await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert!(tries.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
    let last = wait_for(&locks);
    // Nothing is handed over, so the first task has to ask.
    held.lost().await;
    drop(held);
    let begin = Instant::now();
    assert!(tries.as_mut().now_or_never().is_none());
    drop(last.await.unwrap());
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// A hold may end before its ask reaches the last server, and the keeper releases it on another connection.
#[tokio::test(start_paused = true)]
async fn a_release_that_overtakes_an_ask_leaves_no_lock() {
    for (bug, is_left) in [(None, false), (Some(Mutant::LaggingForgotten), true)] {
        let mut left = 0;
        for seed in 0..8 {
            left += left_behind_by_a_release(seed, bug).await;
        }
        assert_eq!(left > 0, is_left, "{bug:?}: {left}");
    }
}

/// On how many servers a lock is left. In some worlds the ask to the first server takes long.
async fn left_behind_by_a_release(seed: u64, bug: Option<Mutant>) -> usize {
    let (_time, servers) = quorum_of(seed, 0);
    let locks = connect(&servers, "p").await;
    let _seeded = Seeded::begin(bug);
    let slow = Conditions { delay: Duration::from_millis(1), slow: 1.0, ..Conditions::default() };
    servers.all()[0].set_conditions(slow);
    let guard = locks.lock("k", &0).acquire().await.unwrap();
    servers.all()[0].set_conditions(Conditions::default());
    drop(guard);
    sleep(Duration::from_millis(300)).await;
    count(&servers, "k:0")
}

/// The timeout cuts short the ask to the first server. That says nothing about the server: the lock was busy.
#[tokio::test(start_paused = true)]
async fn an_ask_that_had_too_little_time_is_no_outage() {
    let (_time, servers) = quorum(30);
    let (one, other) = (connect(&servers, "p").await, connect(&servers, "q").await);
    let _held = one.lock("k", &0).acquire().await.unwrap();
    let refused = other.lock("k", &0).timeout(Duration::from_millis(40)).acquire().await;
    assert!(matches!(refused, Err(LockError::Timeout { .. })), "{refused:?}");
}

/// One of three servers is away. On one of the others a lease has expired, and that server has granted the lock to another process. So
/// nobody has a majority. Each confirmation keeps that process from the last server.
#[tokio::test(start_paused = true)]
async fn a_lease_on_which_the_servers_disagree_is_released_and_asked_for_again() {
    let (_time, servers) = quorum(0);
    let (one, two) = (connect(&servers, "p").await, connect(&servers, "q").await);
    servers.set_conditions(Conditions { delay: Duration::from_millis(4), ..Conditions::default() });
    servers.all()[2].set_conditions(Conditions { cut_before: 1.0, refused: 1.0, ..Conditions::default() });
    // Longer than a claim: it is confirmed before the hold begins.
    let kept_out = Duration::from_secs(5);
    let asks =
        tokio::spawn(
            async move { one.lock("k", &0).at_least(kept_out).expire(kept_out).timeout(LONG).acquire().await },
        );
    while count(&servers, "k:0") < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    servers.first().execute(&["DEL", "k:0"]);
    let begin = Instant::now();
    two.lock("k", &0).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let had = asks.await.unwrap();
    assert!(had.is_ok(), "{had:?}");
}

/// A server that restarted without its data has forgotten which numbers were drawn. It has no vote, but it executes commands.
#[tokio::test(start_paused = true)]
async fn a_server_without_a_vote_draws_no_fencing_token() {
    for (bug, grows) in [(None, true), (Some(Mutant::RestartedDraws), false)] {
        let (_time, servers) = quorum(0);
        let [far, stopped, forgetful] = servers.all() else { panic!("three servers") };
        let locks = connect(&servers, "p").await;
        let _seeded = Seeded::begin(bug);
        let draw = async || {
            let guard = locks.lock("k", &0).fenced(true).timeout(LONG).acquire().await.unwrap();
            let token = guard.fencing_token().map(u64::from);
            guard.release().await.unwrap();
            sleep(LONG).await;
            token
        };
        stopped.set_conditions(Conditions { cut_before: 1.0, refused: 1.0, ..Conditions::default() });
        stopped.cut(None);
        // Ten minutes ahead of the others.
        let ahead = u64::try_from(Duration::from_secs(600).as_micros()).unwrap();
        let now = far.server(|_, now| now);
        far.execute(&["SET", "{k:0}:fence", &(now + ahead).to_string()]);
        let before = draw().await;
        stopped.set_conditions(Conditions::default());
        forgetful.server(|server, _| server.set_run_id("f"));
        forgetful.forget();
        forgetful.cut(None);
        // Its reply is the last one to count.
        far.move_away(Duration::from_millis(100));
        sleep(LONG).await;
        let after = draw().await;
        assert_eq!(after > before, grows, "{bug:?}: {before:?}, {after:?}");
    }
}

/// The tasks of one process hand the lock to each other again and again.
#[tokio::test(start_paused = true)]
async fn a_busy_process_does_not_keep_a_lock_from_one_that_polls() {
    for (bug, is_soon) in [(None, true), (Some(Mutant::StreakUntold), false)] {
        let (_time, servers) = quorum(0);
        let (one, two) = (connect(&servers, "p").await, connect(&servers, "q").await);
        let _seeded = Seeded::begin(bug);
        let busy: Vec<_> = (0..3)
            .map(|_| {
                let locks = one.clone();
                tokio::spawn(async move {
                    loop {
                        let guard = locks.lock("k", &0).timeout(LONG).acquire().await.unwrap();
                        sleep(Duration::from_millis(5)).await;
                        drop(guard);
                    }
                })
            })
            .collect();
        sleep(Duration::from_secs(1)).await;
        let had = two.lock("k", &0).timeout(Duration::from_secs(5)).acquire().await;
        assert_eq!(had.is_ok(), is_soon, "{bug:?}: {had:?}");
        busy.iter().for_each(JoinHandle::abort);
    }
}
