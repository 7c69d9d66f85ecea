//! What becomes of releases.

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
async fn a_release_that_is_repeated_to_a_server_without_its_script_was_still_a_release() {
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

/// Whether a release counts as one whose answer was lost, and that was sent again when the slot had another master.
async fn is_release_before_a_move_told(bug: Option<Mutant>) -> bool {
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
async fn a_release_that_is_repeated_behind_a_slot_that_moved_was_still_a_release() {
    assert!(is_release_before_a_move_told(None).await);
    assert!(!is_release_before_a_move_told(Some(Mutant::RepetitionBeforeMoveForgotten)).await);
}

#[tokio::test(start_paused = true)]
async fn what_an_outage_left_is_released_as_soon_as_there_is_a_connection() {
    // The keeper tries once a second by then: some time before, and a moment before.
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
    // Whoever connects next has the keeper try at once.
    locks.lock("k", &300).acquire().await.unwrap().release().await.unwrap();
    sleep(Duration::from_millis(20)).await;
    assert_eq!((locked(), locks.core().schedule().releases().0), (0, 0));
}

/// Whether a lock stays whose release was polled once while its connection was cut, and then not polled.
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
    // The task itself may have had no connection in its time. What it held was not lost.
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

/// The renewal took effect, and nobody knows: until the lease must have ended, the release is not given up.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_for_as_long_as_the_store_may_keep_the_lease() {
    for (bug, is_left) in [(None, false), (Some(Mutant::UnansweredRenewalForgotten), true)] {
        let (_time, network) = world();
        let _seeded = Seeded::begin(bug);
        let locks = connect(&network, "p");
        let guard = locks.lock("k", &0).expire(CLAIM * 8).acquire().await.unwrap();
        sleep(Duration::from_millis(2)).await;
        // The answer to the confirmation is lost.
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

/// A release takes two commands when somebody waits of whom its process knows nothing. From afar that is longer than the time of one
/// command. The server is not silent for that: who waits for the release is told that it is done, and the next release need not wait.
#[tokio::test(start_paused = true)]
async fn a_release_of_two_commands_from_afar_is_told_and_keeps_no_other_release_waiting() {
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
                // The second command of this release is still to be answered, and its time would be over.
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

/// The server has lost the lock. From afar the answer that says so comes when one command would have had its time.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_by_a_release_of_two_commands_from_afar() {
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
async fn a_loss_is_told_by_a_release_of_two_commands_from_very_far() {
    for (bug, is_told) in [(None, true), (Some(Mutant::FarReleaseCutShort), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        network.move_away(Duration::from_millis(600));
        let locks = connect_patiently(&network, "p", SECOND * 2);
        let guard = locks.lock("k", &0).timeout(LONG).expire(LONG).acquire().await.unwrap();
        // The keeper has repeated the ask, whose answer took long.
        sleep(Duration::from_millis(400)).await;
        network.forget();
        let released = guard.release().await;
        assert_eq!(matches!(released, Err(LockError::Lost { .. })), is_told, "{bug:?}: {released:?}");
    }
}

/// The server has forgotten the script: one more round trip.
#[tokio::test(start_paused = true)]
async fn a_release_to_a_far_server_without_its_script_is_told() {
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
