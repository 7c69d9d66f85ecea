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

/// Three servers that are so far away, in milliseconds of a round trip.
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

/// How long the slowest of some hand-offs takes, each some milliseconds later after the waiter. The servers are as far away as when
/// the managers connected, or were `near` then.
async fn slowest_hand_off(round_trip: u64, near: bool) -> Duration {
    let mut slowest = Duration::ZERO;
    for wait in (2000..5000).step_by(20) {
        let (_time, servers) = quorum(if near { 0 } else { round_trip });
        let (one, other) = (connect(&servers, "p").await, connect(&servers, "q").await);
        servers.all().iter().for_each(|network| network.move_away(Duration::from_millis(round_trip)));
        let guard = one.lock("k", &0).try_acquire().await.unwrap().unwrap();
        assert!(other.lock("k", &0).try_acquire().await.unwrap().is_none());
        let waiter = tokio::spawn(async move {
            let guard = other.lock("k", &0).timeout(LONG).acquire().await.unwrap();
            (Instant::now(), guard)
        });
        sleep(Duration::from_millis(wait)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (had, guard) = waiter.await.unwrap();
        slowest = slowest.max(had.duration_since(released));
        guard.release().await.unwrap();
    }
    slowest
}

/// The table "At a distance" in docs/topologies.md. Whenever the release comes, also when the keeper has just repeated the ask. A
/// manager that connected when the servers were near does not know that they are far away, and asks several of them to queue.
#[tokio::test(start_paused = true)]
async fn a_hand_off_takes_two_round_trips() {
    for (round_trip, near, most) in [(200, false, 2), (400, false, 2), (400, true, 3)] {
        let slowest = slowest_hand_off(round_trip, near).await;
        let bound = |trips| Duration::from_millis(round_trip) * trips + Duration::from_millis(10);
        assert!((bound(most - 1)..bound(most)).contains(&slowest), "{round_trip} ms, {near}: {slowest:?}");
    }
}

/// Rule Q5: the others have to be asked.
#[tokio::test(start_paused = true)]
async fn a_grant_of_one_server_that_is_taken_for_a_lock_delays_a_hand_off() {
    let _seeded = Seeded::begin(Some(Mutant::PartIsWhole));
    assert!(slowest_hand_off(200, false).await > Duration::from_millis(410));
}

/// A draw takes two round trips, and its task is not late for that time.
#[tokio::test(start_paused = true)]
async fn a_fenced_lock_is_had_from_far_away() {
    for (bug, is_had) in [(None, true), (Some(Mutant::StepsFromAfarAreLate), false)] {
        let (_time, servers) = quorum(400);
        let locks = connect(&servers, "p").await;
        let _seeded = Seeded::begin(bug);
        let begin = Instant::now();
        let had = locks.lock("k", &0).fenced(true).timeout(LONG).acquire().await;
        assert_eq!(had.is_ok() && begin.elapsed() < Duration::from_secs(2), is_had, "{bug:?}: {:?}", begin.elapsed());
    }
}

/// A single try has half a second. A release of its own process that it overtook leaves it no time for a fencing token.
#[tokio::test(start_paused = true)]
async fn a_fenced_try_that_its_own_release_left_too_little_time_is_told_of_a_busy_lock() {
    for (bug, is_told) in [(None, true), (Some(Mutant::OwnReleaseForgotten), false)] {
        let (mut granted, mut refused) = (0, 0);
        for seed in 0..16 {
            let (_time, servers) = quorum_of(seed, 110);
            let locks = connect(&servers, "p").await;
            let _seeded = Seeded::begin(bug);
            servers.set_conditions(Conditions { delay: Duration::from_millis(2), ..Conditions::default() });
            drop(locks.lock("k", &0).timeout(LONG).acquire().await.unwrap());
            // The keeper sends the release. Before that the try would take the lease over.
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

/// The queue of a lock is at the first server. A process learns of it by the push of that server, also when a majority of the
/// others answers first.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_passed_a_lock_knows_who_waits_behind_it() {
    for (bug, is_passed_on) in [(None, true), (Some(Mutant::QueueBehindPartForgotten), false)] {
        let (_time, servers) = quorum(0);
        let (one, two, three) =
            (connect(&servers, "p").await, connect(&servers, "q").await, connect(&servers, "r").await);
        let _seeded = Seeded::begin(bug);
        servers.first().move_away(Duration::from_millis(40));
        let held = one.lock("k", &0).timeout(LONG).acquire().await.unwrap();
        let (first, sibling) = (wait(&two), wait(&two));
        sleep(Duration::from_millis(60)).await;
        let other = wait(&three);
        sleep(Duration::from_millis(60)).await;
        held.release().await.unwrap();
        let first = first.await.unwrap();
        sleep(Duration::from_millis(100)).await;
        drop(first);
        let is_passed = tokio::select! { _ = other => true, _ = sibling => false };
        assert_eq!(is_passed, is_passed_on, "{bug:?}");
    }
}

/// The lock goes to the process that waits, which has still to ask most servers. The next task here must not be quicker.
#[tokio::test(start_paused = true)]
async fn a_process_that_yields_a_lock_does_not_take_it_again_before_who_waits() {
    for (bug, is_passed_on) in [(None, true), (Some(Mutant::ClaimedAfterYield), false)] {
        let mut passed = 0;
        for seed in 0..16 {
            passed += u32::from(yields_to_another(seed, bug).await);
        }
        assert_eq!(passed == 16, is_passed_on, "{bug:?}: {passed}");
    }
}

/// Whether a lock that is yielded goes to the process that waits. The release and the next command take two ways.
async fn yields_to_another(seed: u64, bug: Option<Mutant>) -> bool {
    let (_time, servers) = quorum_of(seed, 0);
    let (one, two) = (connect(&servers, "p").await, connect(&servers, "q").await);
    let _seeded = Seeded::begin(bug);
    let held = one.lock("k", &0).timeout(LONG).acquire().await.unwrap();
    let (sibling, other) = (wait(&one), wait(&two));
    sleep(Duration::from_millis(60)).await;
    servers.set_conditions(Conditions { delay: Duration::from_millis(4), ..Conditions::default() });
    servers.first().move_away(Duration::from_millis(40));
    drop(held);
    tokio::select! { _ = other => true, _ = sibling => false }
}

/// A task that waits for the lock.
fn wait(locks: &LockManager) -> JoinHandle<LockGuard> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.lock("k", &0).timeout(LONG).acquire().await.unwrap() })
}

/// Before it there was a try without an answer, and then a task that did not come.
#[tokio::test(start_paused = true)]
async fn who_waits_behind_late_tasks_is_told_of_a_silent_quorum() {
    for (bug, is_busy) in [(None, false), (Some(Mutant::GivenUpTryForgotten), true)] {
        let (_time, servers) = quorum(0);
        let locks = connect(&servers, "p").await;
        let _seeded = Seeded::begin(bug);
        servers.freeze(LONG);
        let kept = || Box::pin(async { locks.lock("k", &0).timeout(LONG).acquire().await });
        let (mut asks, mut waits) = (kept(), kept());
        assert!(asks.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
        let refused = locks.lock("k", &0).timeout(Duration::from_millis(580)).acquire().await;
        assert_eq!(matches!(refused, Err(LockError::Timeout { .. })), is_busy, "{bug:?}: {refused:?}");
    }
}

/// The first of them does not read the answer to its try. The other was late before, so others are patient with it. Together they
/// have the time that one of them has (rule L7).
#[tokio::test(start_paused = true)]
async fn who_waits_behind_two_late_tasks_waits_no_longer_than_for_one() {
    for (bug, is_soon) in [(None, true), (Some(Mutant::TryStartsPatienceAnew), false)] {
        let (_time, servers) = quorum(0);
        let locks = connect(&servers, "p").await;
        let _seeded = Seeded::begin(bug);
        let held = locks.lock("k", &0).acquire().await.unwrap();
        let kept = || Box::pin(async { locks.lock("k", &0).timeout(LONG).acquire().await });
        let (mut tries, mut waits) = (kept(), kept());
        assert!(tries.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
        drop(held);
        let request = locks.lock("k", &0).timeout(LONG).expire(Duration::from_secs(1)).renew(false);
        let held = request.acquire().await.unwrap();
        sleep(Duration::from_millis(500)).await;
        assert!(tries.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
        let last = wait(&locks);
        // Nothing is handed over, so the first task has to ask.
        held.lost().await;
        drop(held);
        let begin = Instant::now();
        assert!(tries.as_mut().now_or_never().is_none());
        drop(last.await.unwrap());
        assert_eq!(begin.elapsed() < Duration::from_secs(1), is_soon, "{bug:?}: {:?}", begin.elapsed());
    }
}

/// A hold may be over before the last server has its ask, and the keeper releases it over another connection.
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

/// On how many servers a lock is left. In some worlds the ask of the first server takes long.
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

/// The ask of the first server is cut short by the timeout. That says nothing about the server: the lock was busy.
#[tokio::test(start_paused = true)]
async fn an_ask_that_had_too_little_time_is_no_outage() {
    let (_time, servers) = quorum(30);
    let (one, other) = (connect(&servers, "p").await, connect(&servers, "q").await);
    let _held = one.lock("k", &0).acquire().await.unwrap();
    let refused = other.lock("k", &0).timeout(Duration::from_millis(40)).acquire().await;
    assert!(matches!(refused, Err(LockError::Timeout { .. })), "{refused:?}");
}

/// One of three servers is away. A lease has gone on one of the two others, which has the lock for another process now: nobody can tell
/// whose the lock is. Each confirmation keeps it on the last one from that process.
#[tokio::test(start_paused = true)]
async fn a_lease_over_which_the_servers_are_divided_is_given_back_and_asked_for_anew() {
    for (bug, is_had) in [(None, true), (Some(Mutant::DividedLeaseKept), false)] {
        let (_time, servers) = quorum(0);
        let (one, two) = (connect(&servers, "p").await, connect(&servers, "q").await);
        let _seeded = Seeded::begin(bug);
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
        assert_eq!(had.is_ok(), is_had, "{bug:?}: {had:?}");
    }
}

/// A server that restarted without its data has forgotten which numbers were drawn. It has no vote, but it executes what it is asked.
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
        // Ten minutes later than the others.
        let ahead = u64::try_from(Duration::from_secs(600).as_micros()).unwrap();
        let now = far.server(|_, now| now);
        far.execute(&["SET", "{k:0}:fence", &(now + ahead).to_string()]);
        let before = draw().await;
        stopped.set_conditions(Conditions::default());
        forgetful.server(|server, _| server.set_run_id("f"));
        forgetful.forget();
        forgetful.cut(None);
        // Its clock counts last.
        far.move_away(Duration::from_millis(100));
        sleep(LONG).await;
        let after = draw().await;
        assert_eq!(after > before, grows, "{bug:?}: {before:?}, {after:?}");
    }
}
