#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::FutureExt as _;
use server_model::{ModelServer, slot_of};
use tokio::time::{Instant, sleep, timeout};

use super::{SECOND, is_locked, kept, world};
use crate::LockError;
use crate::mutants::{Mutant, Seeded};
use crate::settings::Settings;
use crate::simulation::network::Conditions;
use crate::simulation::process::{connect, connect_patiently, connect_to_cluster};
use crate::timing::CLAIM;

const LONG: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn a_repeated_release_is_no_loss_when_the_server_forgot_its_script() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    let guard = locks.lock("k", &0).acquire().await.unwrap();
    network.set_conditions(Conditions { delay: Duration::from_millis(20), cut_after: 1.0, ..Conditions::default() });
    let release = tokio::spawn(guard.release());
    while network.server(ModelServer::snapshot).iter().any(|(key, _)| key == "k:0") {
        sleep(Duration::from_millis(1)).await;
    }
    network.server(|server, _| server.flush_scripts());
    network.set_conditions(Conditions::default());
    release.await.unwrap().unwrap();
}

/// Whether a release whose reply was lost, and that was sent again after the slot got another master, still counts as a release.
async fn is_release_before_a_move_reported(bug: Option<Mutant>) -> bool {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    network.server(|server, _| server.set_nodes(2));
    let locks = connect_to_cluster(&network, "p", Settings::default().max_clock_drift_ppm);
    let guard = locks.lock("k", &0).acquire().await.unwrap();
    network.set_conditions(Conditions { delay: Duration::from_millis(20), cut_after: 1.0, ..Conditions::default() });
    let release = tokio::spawn(guard.release());
    while is_locked(&network, "k:0") {
        sleep(Duration::from_millis(1)).await;
    }
    network.server(|server, _| server.move_slot(slot_of(b"k:0"), 1));
    network.set_conditions(Conditions::default());
    release.await.unwrap().is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_release_is_no_loss_when_its_slot_moved() {
    assert!(is_release_before_a_move_reported(None).await);
    assert!(!is_release_before_a_move_reported(Some(Mutant::RepetitionBeforeMoveForgotten)).await);
}

#[tokio::test(start_paused = true)]
async fn what_an_outage_left_is_released_as_soon_as_there_is_a_connection() {
    // By then the keeper tries once a second: the outage ends some time before a try, or just before it.
    for millis in [9500, 9000, 8990] {
        after_an_outage(Duration::from_millis(millis)).await;
    }
}

async fn after_an_outage(outage: Duration) {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    let guards = futures_util::future::join_all((0..300_u32).map(|key| {
        let request = locks.lock("k", &key).expire(Duration::from_mins(1));
        async { request.acquire().await.unwrap() }
    }));
    let guards = guards.await;
    sleep(Duration::from_millis(50)).await;
    network.set_conditions(Conditions { refused: 1.0, ..Conditions::default() });
    network.cut(None);
    drop(guards);
    sleep(outage).await;
    let locked = || network.server(ModelServer::snapshot).iter().filter(|(key, _)| key.starts_with("k:")).count();
    assert_eq!((locked(), locks.core().schedule().releases().0), (300, 300));
    network.set_conditions(Conditions::default());
    // A new connection makes the keeper try at once.
    locks.lock("k", &300).acquire().await.unwrap().release().await.unwrap();
    sleep(Duration::from_millis(20)).await;
    assert_eq!((locked(), locks.core().schedule().releases().0), (0, 0));
}

/// Whether a lock stays whose release was polled once while its connection was cut, and then not again.
async fn late_release_leaves_the_lock(bug: Option<Mutant>, is_contended: bool) -> bool {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
    let guard = locks.lock("k", &0).expire(CLAIM * 8).acquire().await.unwrap();
    sleep(Duration::from_millis(300)).await;
    let waiting = is_contended.then(|| kept(&others, 0, false));
    sleep(Duration::from_millis(100)).await;
    network.cut(Some("p"));
    let mut releasing = Box::pin(guard.release());
    assert!(releasing.as_mut().now_or_never().is_none());
    let released = Instant::now();
    let is_left = if let Some(waiting) = waiting {
        timeout(SECOND, waiting).await.is_err()
    } else {
        sleep(SECOND).await;
        is_locked(&network, "k:0")
    };
    assert!(released.elapsed() <= SECOND);
    // The task may have had no connection in its time. Its hold was not lost.
    let outcome = releasing.await;
    assert!(matches!(outcome, Ok(()) | Err(LockError::Backend { .. })), "{outcome:?}");
    is_left
}

#[tokio::test(start_paused = true)]
async fn a_release_that_its_task_does_not_poll_is_done_by_the_keeper() {
    for is_contended in [false, true] {
        assert!(!late_release_leaves_the_lock(None, is_contended).await);
        assert!(late_release_leaves_the_lock(Some(Mutant::LateReleaseLeft), is_contended).await);
    }
}

/// The renewal was executed, but its reply was lost: the release is repeated until the lease must have ended.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_for_as_long_as_the_store_may_keep_the_lease() {
    for (bug, is_left) in [(None, false), (Some(Mutant::UnansweredRenewalForgotten), true)] {
        let (_time, network) = world();
        let _seeded = Seeded::begin(bug);
        let locks = connect(&network, "p");
        let guard = locks.lock("k", &0).expire(CLAIM * 8).acquire().await.unwrap();
        sleep(Duration::from_millis(2)).await;
        // The reply to the confirmation is lost.
        network.deafen("p");
        sleep(Duration::from_millis(50)).await;
        assert!(guard.remaining() < CLAIM);
        network.part("p", CLAIM * 3);
        network.cut(Some("p"));
        drop(guard);
        sleep(CLAIM * 4).await;
        let keys = network.server(ModelServer::snapshot);
        assert_eq!(keys.iter().any(|(key, _)| key == "k:0"), is_left, "{bug:?}: {keys:?}");
    }
}

/// A release takes two commands if there is a waiter that its process does not know of. At a distance, that takes longer than one command
/// may. The server is not silent, though: the task learns that the release is done, and the next release need not wait.
#[tokio::test(start_paused = true)]
async fn a_release_of_two_commands_from_afar_is_reported_and_delays_no_other_release() {
    for (bug, is_well) in [(None, true), (Some(Mutant::TwoCommandsInTimeOfOne), false)] {
        for is_awaited in [true, false] {
            let (_time, network) = world();
            network.move_away(Duration::from_millis(400));
            let (one, other) = (connect(&network, "p"), connect(&network, "q"));
            let _seeded = Seeded::begin(bug);
            let held = [0, 1].map(|key| one.lock("k", &key).timeout(LONG).expire(LONG));
            let [first, second] = held.map(async |request| request.acquire().await.unwrap());
            let (first, second) = futures_util::future::join(first, second).await;
            let waiter = tokio::spawn(async move { other.lock("k", &0).timeout(LONG).acquire().await });
            sleep(Duration::from_millis(700)).await;
            if is_awaited {
                assert_eq!(first.release().await.is_ok(), is_well, "{bug:?}");
            } else {
                drop(first);
                // The second command of this release is still unanswered, and its time would be over.
                sleep(Duration::from_millis(700)).await;
                let begin = Instant::now();
                drop(second);
                while is_locked(&network, "k:1") {
                    sleep(Duration::from_millis(5)).await;
                }
                let took = begin.elapsed();
                assert_eq!(took < Duration::from_millis(250), is_well, "{bug:?}: {took:?}");
            }
            drop(waiter.await.unwrap().unwrap());
        }
    }
}

/// The server has lost the lock. At a distance, the reply that says so arrives when the time of one command would be over.
#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_by_a_release_of_two_commands_from_afar() {
    for (bug, is_told) in [(None, true), (Some(Mutant::StandsInTooSoon), false)] {
        let (_time, network) = world();
        network.move_away(Duration::from_millis(400));
        let locks = connect(&network, "p");
        let _seeded = Seeded::begin(bug);
        let guard = locks.lock("k", &0).timeout(LONG).expire(LONG).acquire().await.unwrap();
        network.forget();
        let released = guard.release().await;
        assert_eq!(matches!(released, Err(LockError::Lost { .. })), is_told, "{bug:?}: {released:?}");
    }
}

/// Two commands take longer than the keeper usually waits for a release.
#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_by_a_release_of_two_commands_from_very_far() {
    for (bug, is_told) in [(None, true), (Some(Mutant::FarReleaseCutShort), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        network.move_away(Duration::from_millis(600));
        let locks = connect_patiently(&network, "p", SECOND * 2);
        let guard = locks.lock("k", &0).timeout(LONG).expire(LONG).acquire().await.unwrap();
        // The keeper has repeated the ask, whose reply took long.
        sleep(Duration::from_millis(400)).await;
        network.forget();
        let released = guard.release().await;
        assert_eq!(matches!(released, Err(LockError::Lost { .. })), is_told, "{bug:?}: {released:?}");
    }
}

/// The server has forgotten the script, which takes one more round trip.
#[tokio::test(start_paused = true)]
async fn a_release_to_a_far_server_without_its_script_is_reported() {
    for (bug, is_told) in [(None, true), (Some(Mutant::TwoCommandsInTimeOfOne), false)] {
        let (_time, network) = world();
        network.move_away(Duration::from_millis(300));
        let locks = connect(&network, "p");
        locks.lock("k", &0).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
        let guard = locks.lock("k", &0).timeout(LONG).acquire().await.unwrap();
        network.server(|server, _| server.flush_scripts());
        let _seeded = Seeded::begin(bug);
        let released = guard.release().await;
        assert_eq!(released.is_ok(), is_told, "{bug:?}: {released:?}");
    }
}
