//! Single scenes: races at an instant that no test on a real server could hit.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{LockError, LockGuard, LockManager};

mod cuts;
mod fences;
mod keys;
mod refusals;
mod releases;
mod tickets;
mod tries;
mod waits;

const SECOND: Duration = Duration::from_secs(1);

fn world() -> (Simulated, Arc<Network>) {
    world_of(0)
}

fn world_on(server: ModelServer) -> (Simulated, Arc<Network>) {
    (Simulated::begin(), Network::new(server, 1.0, Rng::with_seed(0)))
}

fn world_of(seed: u64) -> (Simulated, Arc<Network>) {
    (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(seed)))
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_at_its_deadline_while_its_renewal_is_on_its_way() {
    let (_time, network) = world();
    let lease = Duration::from_millis(600);
    let guard = connect(&network, "p").lock("k", &0).expire(lease).renew(true).acquire().await.unwrap();
    network.freeze(lease * 9);
    let end = Instant::now() + guard.remaining();
    // A renewal is on its way when the lease ends, and nothing else wakes this task.
    guard.lost().await;
    assert!(Instant::now() < end + Duration::from_millis(3), "{:?} late", end.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_queued_task_reports_a_silent_server_however_short_its_timeout() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(Duration::from_secs(9));
    let first = locks.lock("k", &0).timeout(Duration::from_secs(1)).acquire();
    let second = locks.lock("k", &0).timeout(Duration::from_millis(30)).acquire();
    let (_, second) = tokio::join!(biased; first, second);
    assert!(matches!(second, Err(LockError::Backend { .. })), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_a_second() {
    let (_time, network) = world();
    let (holder, waiter) = (connect(&network, "p"), connect(&network, "q"));
    let wait = |key: u32| {
        let waiter = waiter.clone();
        tokio::spawn(async move { waiter.lock("k", &key).timeout(Duration::from_secs(9)).acquire().await })
    };
    let _held = holder.lock("k", &0).acquire().await.unwrap();
    let guard = holder.lock("k", &1).acquire().await.unwrap();
    // This task starts the period of repeated asks; the other task asks in the middle of it.
    let other = wait(0);
    sleep(Duration::from_millis(600)).await;
    let waiting = wait(1);
    sleep(Duration::from_millis(100)).await;
    network.set_conditions(Conditions { push_lost: 1.0, ..Conditions::default() });
    guard.release().await.unwrap();
    let released = Instant::now();
    let granted = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_millis(1050), "{:?}", released.elapsed());
    drop(granted);
    other.abort();
}

/// The reply to a claim of 305 ms is this late. Returns what is left of the lease when the hold starts, if it starts.
async fn left_after(answered: Duration) -> Option<Duration> {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(answered);
    let request = locks.lock("k", &1).expire(Duration::from_millis(305)).timeout(Duration::from_secs(1));
    request.acquire().await.ok().map(|guard| guard.remaining())
}

/// The reply to a claim may arrive when its lease is almost over.
#[tokio::test(start_paused = true)]
async fn a_hold_does_not_start_on_the_last_instant_of_a_lease() {
    for late in 280..305 {
        let left = left_after(Duration::from_millis(late)).await;
        assert!(left.is_none_or(|left| left >= Duration::from_millis(1)), "answered after {late} ms: {left:?}");
    }
}

/// Makes this many failing tries, one after another, each on its own key.
async fn fail(locks: &crate::LockManager, tries: u32) {
    for key in 0..tries {
        let outcome = locks.lock("k", &key).timeout(Duration::from_millis(30)).acquire().await;
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_is_not_withdrawn() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.set_conditions(Conditions { refused: 1.0, ..Conditions::default() });
    network.cut(None);
    fail(&locks, 100).await;
    let kept = || locks.core().schedule().releases().0;
    // The first try noticed that the connection is gone, and may have been executed.
    assert!(kept() <= 1, "{} are kept: connections were refused", kept());
    network.set_conditions(Conditions::default());
    network.part("p", Duration::from_mins(1));
    fail(&locks, 100).await;
    assert!(kept() <= 1, "{} are kept: no connection was made", kept());
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_to_a_server_that_is_silent_is_withdrawn_for_some_seconds_and_not_for_ever() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(Duration::from_mins(1));
    fail(&locks, 10).await;
    let (kept, sent) = locks.core().schedule().releases();
    assert!((1..=10).contains(&kept), "{kept} are kept");
    // The last of them has expired by then, and the keeper checks at least once a second.
    sleep(Duration::from_secs(8)).await;
    let (kept, later) = locks.core().schedule().releases();
    assert_eq!(kept, 0);
    assert!(later - sent <= 10, "{} batches", later - sent);
}

/// Whether the server has the lock.
fn is_locked(network: &Network, key: &str) -> bool {
    network.server(ModelServer::snapshot).iter().any(|(name, _)| name == key)
}

/// Polls an acquire once: it is on its way, and its task is late from now on.
fn kept(locks: &LockManager, key: u32, fenced: bool) -> Pin<Box<dyn Future<Output = Result<LockGuard, LockError>>>> {
    let request = locks.lock("k", &key).fenced(fenced).timeout(Duration::from_mins(1));
    let mut acquiring = Box::pin(async move { request.acquire().await });
    assert!(acquiring.as_mut().now_or_never().is_none());
    acquiring
}

/// By then the keeper has noticed that no task takes the grant, and has released it.
const RELEASED: Duration = Duration::from_secs(2);

/// Whether a task that is late twice makes the server keep the lock for it. Its first ask waited for a connection; or, with `fenced`, the
/// server has forgotten the script by then.
async fn late_task_keeps_the_lock(fenced: bool, bug: Option<Mutant>) -> bool {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    let locks = connect(&network, "p");
    if fenced {
        locks.lock("k", &0).fenced(true).acquire().await.unwrap().release().await.unwrap();
        network.server(|server, _| server.flush_scripts());
    }
    let mut late = kept(&locks, 0, fenced);
    sleep(RELEASED).await;
    assert!(!is_locked(&network, "k:0"));
    assert!(late.as_mut().now_or_never().is_none(), "its next step is to ask again");
    sleep(RELEASED).await;
    let is_kept = is_locked(&network, "k:0");
    late.await.unwrap().release().await.unwrap();
    is_kept
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_late_for_its_connection_does_not_send_an_ask_that_was_given_up() {
    assert!(!late_task_keeps_the_lock(false, None).await);
    assert!(late_task_keeps_the_lock(false, Some(Mutant::GivenUpIsSent)).await);
}

#[tokio::test(start_paused = true)]
async fn a_late_task_does_not_resend_a_missing_script_for_an_ask_that_was_given_up() {
    assert!(!late_task_keeps_the_lock(true, None).await);
    assert!(late_task_keeps_the_lock(true, Some(Mutant::GivenUpIsSent)).await);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_polled_too_late_does_not_report_a_free_lock_as_busy() {
    for bug in [None, Some(Mutant::SilenceIsBusy)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
        let request = locks.lock("k", &1);
        let mut late = Box::pin(request.try_acquire());
        assert!(late.as_mut().now_or_never().is_none());
        sleep(Duration::from_millis(700)).await;
        let told = late.await;
        assert_eq!(matches!(told, Ok(None)), bug.is_some(), "{told:?}");
        assert!(bug.is_some() || matches!(told, Err(LockError::Backend { .. })), "{told:?}");
    }
}

/// Whether a lock stays that was granted to the keeper's late repetition of an ask, whose reply was lost. `None` if the repetition is not
/// late: the network delays it only in some worlds.
async fn repetition_leaves_the_lock(seed: u64, bug: Option<Mutant>) -> Option<bool> {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world_of(seed);
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    let acquiring = kept(&locks, 0, false);
    // The keeper repeats the ask, whose reply takes long to arrive and is not read.
    sleep(Duration::from_millis(40)).await;
    network.set_conditions(Conditions { delay: Duration::from_millis(2), slow: 1.0, ..Conditions::default() });
    sleep(Duration::from_millis(25)).await;
    network.set_conditions(Conditions::default());
    acquiring.await.unwrap().release().await.unwrap();
    assert!(!is_locked(&network, "k:0"));
    network.set_conditions(Conditions { cut_after: 1.0, ..Conditions::default() });
    let released = Instant::now();
    while !is_locked(&network, "k:0") {
        sleep(Duration::from_millis(1)).await;
        if released.elapsed() > Duration::from_millis(300) {
            return None;
        }
    }
    sleep(Duration::from_millis(400)).await;
    network.set_conditions(Conditions::default());
    sleep(Duration::from_millis(1200)).await;
    Some(is_locked(&network, "k:0"))
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_repetition_by_the_keeper_is_withdrawn_when_its_lease_is_over() {
    for (bug, is_left) in [(None, false), (Some(Mutant::RepetitionLeft), true)] {
        let mut left = Vec::new();
        for seed in 0..20 {
            left.extend(repetition_leaves_the_lock(seed, bug).await);
        }
        assert!(!left.is_empty() && left.iter().all(|left| *left == is_left), "{bug:?}: {left:?}");
    }
}

/// The keeper repeats an ask whose reply is not read. Without a connection it sends nothing, so nothing has to be withdrawn, even if it
/// does not know the server's distance yet.
#[tokio::test(start_paused = true)]
async fn what_was_never_sent_is_not_repeated_either() {
    for bug in [None, Some(Mutant::RepeatedCutOff)] {
        let (_time, network) = world();
        let _seeded = Seeded::begin(bug);
        network.move_away(Duration::from_millis(400));
        network.set_conditions(Conditions { refused: 1.0, ..Conditions::default() });
        let locks = connect(&network, "p");
        for number in 0..20 {
            let tried = locks.lock("k", &number).timeout(Duration::from_millis(80)).acquire().await;
            assert!(matches!(tried, Err(LockError::Backend { .. })), "{tried:?}");
        }
        // They wait, or are about to connect.
        let kept = locks.stats().unreleased;
        assert_eq!(kept > 0, bug.is_some(), "{bug:?}: {kept} withdrawals wait to be sent");
    }
}

/// How long others wait for a lock whose next owner crashes while its grant is being confirmed for a task that wants a long lease.
async fn crash_before_the_hold_costs(bug: Option<Mutant>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    let [holder, crashing, next] = ["p", "q", "r"].map(|name| connect(&network, name));
    let guard = holder.lock("k", &0).acquire().await.unwrap();
    let request = |expire| crashing.lock("k", &0).expire(expire).timeout(Duration::from_mins(1));
    // The claim of this task is too short for the task behind it.
    let short = tokio::spawn(request(Duration::from_millis(200)).acquire());
    sleep(Duration::from_millis(10)).await;
    let long = tokio::spawn(request(Duration::from_secs(20)).acquire());
    short.abort();
    sleep(Duration::from_millis(10)).await;
    let waiting = kept(&next, 0, false);
    let slot = crashing.core().table().get("k:0").unwrap();
    network.move_away(Duration::from_millis(20));
    let release = tokio::spawn(guard.release());
    while !slot.has_lease() {
        sleep(Duration::from_millis(1)).await;
    }
    // The confirmation arrives, and its reply does not.
    sleep(Duration::from_millis(15)).await;
    network.part("q", Duration::from_hours(1));
    let crashed = Instant::now();
    drop(waiting.await.unwrap());
    long.abort();
    release.await.unwrap().unwrap();
    crashed.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_process_that_crashes_before_its_hold_begins_costs_others_a_claim() {
    assert!(crash_before_the_hold_costs(None).await < Duration::from_secs(3));
    assert!(crash_before_the_hold_costs(Some(Mutant::ConfirmedBeforeHold)).await > Duration::from_secs(15));
}

/// A number of 2^53 or more can't be ours: scripts count in doubles, which skip the next one.
#[tokio::test(start_paused = true)]
async fn no_fencing_token_is_drawn_after_a_number_too_large_for_scripts() {
    const MOST: u64 = (1 << 53) - 1;
    for (is_checked, written, drawn) in [(true, MOST - 3, 2), (true, MOST, 0), (true, u64::MAX, 0), (false, MOST, 3)] {
        let (_time, network) = world();
        if !is_checked {
            network.server(|server, _| server.patch("not (first + count <= MOST_FENCE)", "false"));
        }
        network.execute(&["SET", "{k:0}:fence", &written.to_string()]);
        let locks = connect(&network, "p");
        let mut tokens = Vec::new();
        for _ in 0..3 {
            match locks.lock("k", &0).fenced(true).acquire().await {
                Ok(guard) => tokens.push(guard.fencing_token().map(u64::from)),
                Err(error) => assert!(error.to_string().contains("fencing token {k:0}:fence"), "{error}"),
            }
        }
        assert_eq!(tokens.len(), drawn, "{written}: {tokens:?}");
        assert_eq!(tokens.windows(2).any(|two| two[0] >= two[1]), !is_checked, "{tokens:?}");
    }
}
