//! Rule 16: a push is a hint. A client that may publish, and knows the channel and the tokens of a process, sends that process false
//! messages. Each test also shows what happens with a bug.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::network::{Conditions, Network};
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::timing::CLAIM;
use crate::{LockError, LockGuard, LockManager, LockRequest};

/// More than the keeper needs to confirm a hold.
const CONFIRMED: Duration = Duration::from_millis(15);
const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_hours(1);

fn world() -> (Simulated, Arc<Network>, [LockManager; 2]) {
    let (time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let locks = ["p", "q"].map(|name| connect(&network, name));
    (time, network, locks)
}

/// Sends `told` a false message about each of the first tokens of `of`.
fn lie(network: &Network, told: &LockManager, of: &LockManager, message: impl Fn(&str) -> String) {
    let channel = format!("cache_lock:{}", told.core().process_id());
    for sequence in 1..9 {
        // A token whose lease may linger has a 0 in front.
        for zero in ["", "0"] {
            let token = format!("{}.{zero}{sequence}@{}", of.core().process_id(), of.core().label());
            network.execute(&["PUBLISH", &channel, &message(&token)]);
        }
    }
}

/// Its server time is later than any other.
fn grant(network: &Network, told: &LockManager, of: &LockManager) {
    let claim = LONG.as_millis();
    lie(network, told, of, |token| format!("grant {claim} 9000000000000000 0 {token} k:0"));
}

fn forced(network: &Network, told: &LockManager, of: &LockManager) {
    lie(network, told, of, |token| format!("forced {token} k:0"));
}

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("k", &0).timeout(LONG)
}

/// The outcome of a process that waits for a lock held by another process, and is sent a false grant.
async fn granted_by_a_lie(
    of: impl FnOnce(LockRequest) -> LockRequest,
    bug: Option<Mutant>,
) -> Option<(Duration, bool)> {
    let _seeded = Seeded::begin(bug);
    let (_time, network, [told, holder]) = world();
    let held = request(&holder).acquire().await.unwrap();
    let mut waiting = tokio::spawn(of(request(&told)).acquire());
    sleep(SOON).await;
    grant(&network, &told, &told);
    let guard = timeout(SOON, &mut waiting).await;
    let believed = match &guard {
        Ok(guard) => Some(guard.as_ref().unwrap().as_ref().unwrap()),
        Err(_) => None,
    };
    let remaining = believed.map(LockGuard::remaining);
    sleep(CONFIRMED).await;
    let believed = believed.map(LockGuard::is_valid);
    assert!(held.is_valid());
    held.release().await.unwrap();
    if guard.is_err() {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    remaining.zip(believed)
}

#[tokio::test(start_paused = true)]
async fn a_false_grant_is_believed_until_the_hold_is_confirmed_and_for_no_longer_than_its_claim() {
    let granted = granted_by_a_lie(|request| request.expire(LONG * 2), None).await;
    assert!(granted.is_some_and(|(remaining, is_valid)| remaining < CLAIM && !is_valid), "{granted:?}");
    let granted = granted_by_a_lie(|request| request.expire(LONG * 2), Some(Mutant::PushedClaimBelieved)).await;
    assert!(granted.is_some_and(|(remaining, _)| remaining > CLAIM), "{granted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_would_confirm_later_is_confirmed_before_its_hold() {
    for expire in [CLAIM / 50, CLAIM / 2, CLAIM] {
        let unrenewed = |request: LockRequest| request.expire(expire).renew(false);
        assert_eq!(granted_by_a_lie(unrenewed, None).await, None);
        let granted = granted_by_a_lie(unrenewed, Some(Mutant::PushCountsAsAnswer)).await;
        assert!(granted.is_some(), "{expire:?}");
    }
}

/// How long the tasks of a process hand over a lock that is not theirs, each after a moment.
async fn passed_on_for(bug: Option<Mutant>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network, [told, holder]) = world();
    let _held = request(&holder).acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let request = request(&told).timeout(SOON * 3);
        tasks.spawn(async move {
            let guard = request.acquire().await.ok()?;
            sleep(Duration::from_millis(1)).await;
            drop(guard);
            Some(Instant::now())
        });
    }
    sleep(SOON).await;
    let start = Instant::now();
    grant(&network, &told, &told);
    let ends = tasks.join_all().await;
    ends.into_iter().flatten().max().unwrap() - start
}

#[tokio::test(start_paused = true)]
async fn holds_that_follow_each_other_are_confirmed_as_soon_as_one_of_them() {
    let took = passed_on_for(None).await;
    assert!(took < CONFIRMED, "{took:?}");
    let took = passed_on_for(Some(Mutant::HintStaysYoung)).await;
    assert!(took > CONFIRMED * 4, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lingers_after_a_lie_is_confirmed_before_it_is_used_again() {
    let (_time, network, [told, holder]) = world();
    let held = request(&holder).acquire().await.unwrap();
    let first = tokio::spawn(request(&told).linger(SOON * 2).acquire());
    sleep(SOON).await;
    grant(&network, &told, &told);
    first.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(told.stats().lingering, 1);
    let second = request(&told).linger(SOON).timeout(SOON).acquire().await;
    assert!(matches!(second, Err(LockError::Timeout { .. })), "{second:?}");
    assert!(held.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_false_force_ends_nothing_and_does_not_explain_a_later_loss() {
    for bug in [None, Some(Mutant::ForcedUnchecked)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network, [told, _]) = world();
        let guard = request(&told).acquire().await.unwrap();
        for _ in 0..9 {
            forced(&network, &told, &told);
            sleep(SOON / 9).await;
        }
        assert_eq!(guard.is_valid(), bug.is_none());
        if bug.is_none() {
            network.execute(&["DEL", "k:0"]);
            let lost = guard.release().await;
            assert!(matches!(lost, Err(LockError::Lost { forced: false, .. })), "{lost:?}");
        }
    }
}

/// How long another process waits for a resting lock when its owner gets a message about a force.
async fn rests_for(is_true: bool) -> Duration {
    let (_time, network, [told, other]) = world();
    request(&told).at_least(CLAIM * 4).run(async {}).await.unwrap();
    sleep(SOON).await;
    let start = Instant::now();
    if is_true {
        assert!(other.force_release("k", &0).await.unwrap());
    } else {
        forced(&network, &told, &told);
    }
    request(&other).acquire().await.unwrap().release().await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_forced_lock_rests_no_more_and_a_false_message_does_not_end_a_rest() {
    assert!(rests_for(true).await < SOON);
    assert!(rests_for(false).await > CLAIM * 3);
}

#[tokio::test(start_paused = true)]
async fn nobody_releases_what_belongs_to_another_process_because_of_a_message() {
    for bug in [None, Some(Mutant::ToldOfOthers)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network, [told, holder]) = world();
        let guard = request(&holder).acquire().await.unwrap();
        assert!(told.inspect("k", &0).await.unwrap().is_some(), "it is connected, and listens");
        grant(&network, &told, &holder);
        sleep(SOON).await;
        assert_eq!(guard.release().await.is_ok(), bug.is_none());
        // The mark of a lock released by force is not theirs either. The holder has confirmed its hold, and does not check again.
        let guard = request(&holder).acquire().await.unwrap();
        sleep(SOON).await;
        let owner = format!("{}.2@{}|forced", holder.core().process_id(), holder.core().label());
        network.execute(&["SET", "k:0", &owner]);
        forced(&network, &told, &holder);
        sleep(SOON).await;
        let is_left = network.server(ModelServer::snapshot).iter().any(|(key, _)| key == "k:0");
        assert_eq!(is_left, bug.is_none());
        drop(guard);
    }
}

/// A client that reads a token can guess the next tokens of its process. A message about one of them finds no slot, and a release of it
/// would wait until the token is made.
#[tokio::test(start_paused = true)]
async fn nobody_releases_a_token_before_it_is_made() {
    for bug in [None, Some(Mutant::ToldOfTheFuture)] {
        let mut lost = 0;
        for seed in 0..60 {
            let (_seeded, _time) = (Seeded::begin(bug), Simulated::begin());
            let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(seed));
            let told = connect(&network, "p");
            request(&told).acquire().await.unwrap().release().await.unwrap();
            network.set_conditions(Conditions { delay: Duration::from_millis(9), ..Conditions::default() });
            grant(&network, &told, &told);
            sleep(Duration::from_millis(seed % 15)).await;
            let guard = request(&told).acquire().await.unwrap();
            sleep(SOON).await;
            lost += u32::from(guard.release().await.is_err());
        }
        assert_eq!(lost > 0, bug.is_some(), "{bug:?}: {lost}");
    }
}

/// A task waits for the reply to its release. A second release, caused by a message, would be answered first.
#[tokio::test(start_paused = true)]
async fn an_awaited_release_reports_no_loss_because_of_a_false_message() {
    for bug in [None, Some(Mutant::AwaitedReleaseRepeated)] {
        let mut lost = 0;
        for seed in 0..300 {
            let (_seeded, _time) = (Seeded::begin(bug), Simulated::begin());
            let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(seed));
            let told = connect(&network, "p");
            let guard = request(&told).acquire().await.unwrap();
            sleep(CONFIRMED).await;
            network.set_conditions(Conditions { delay: Duration::from_millis(9), ..Conditions::default() });
            let release = tokio::spawn(guard.release());
            sleep(Duration::from_millis(seed % 9)).await;
            grant(&network, &told, &told);
            lost += u32::from(release.await.unwrap().is_err());
        }
        assert_eq!(lost > 0, bug.is_some(), "{bug:?}: {lost}");
    }
}
