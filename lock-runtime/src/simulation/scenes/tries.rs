//! Single tries: an acquire with a timeout of zero gets a true answer after one reply.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::{Conditions, SECOND, world};
use crate::LockError;
use crate::error::LossReason;
use crate::mutants::{Mutant, Seeded};
use crate::simulation::process::connect;
use crate::simulation::time::suspend;

/// It does not wait for its sibling's reply.
#[tokio::test(start_paused = true)]
async fn a_single_try_beside_a_sibling_that_asks_reports_busy_at_once() {
    let (_time, network) = world();
    network.move_away(Duration::from_millis(200));
    let locks = connect(&network, "p");
    let mut sibling = std::pin::pin!(locks.lock("k", &0).acquire());
    assert!(sibling.as_mut().now_or_never().is_none(), "it asks");
    let begin = Instant::now();
    let tried = locks.lock("k", &0).try_acquire().await;
    assert!(matches!(tried, Ok(None)) && begin.elapsed().is_zero(), "{tried:?} after {:?}", begin.elapsed());
    sibling.await.unwrap().release().await.unwrap();
}

/// Its connection was made while the server was slow, so the server seems further away than the request has time.
#[tokio::test(start_paused = true)]
async fn a_request_behind_a_sibling_that_a_silent_server_does_not_answer_reports_the_silence() {
    let (_time, network) = world();
    network.move_away(Duration::from_millis(80));
    let locks = connect(&network, "p");
    locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
    network.freeze(SECOND * 2);
    let mut sibling = std::pin::pin!(locks.lock("k", &0).timeout(SECOND).acquire());
    assert!(sibling.as_mut().now_or_never().is_none(), "it asks");
    let waits = locks.lock("k", &0).timeout(Duration::from_millis(100)).acquire();
    let (waited, asked) = tokio::join!(waits, sibling);
    assert!(matches!(waited, Err(LockError::Backend { .. })), "{waited:?}");
    assert!(matches!(asked, Err(LockError::Backend { .. })), "{asked:?}");
}

/// The table "At a distance" in docs/topologies.md: at 400 ms the default command timeout is little more than a reply takes.
#[tokio::test(start_paused = true)]
async fn a_single_try_of_a_free_lock_succeeds_at_every_distance_with_the_default_settings() {
    for round_trip in [1, 30, 100, 200, 400].map(Duration::from_millis) {
        let (_time, network) = world();
        network.move_away(round_trip);
        let locks = connect(&network, "p");
        // Makes the connection.
        locks.lock("k", &0).timeout(round_trip * 9).acquire().await.unwrap().release().await.unwrap();
        let begin = Instant::now();
        let tried = locks.lock("k", &1).try_acquire().await;
        let guard = tried.unwrap().unwrap_or_else(|| panic!("{round_trip:?}: it is free"));
        assert!(begin.elapsed() < round_trip + Duration::from_millis(3), "{round_trip:?}: {:?}", begin.elapsed());
        guard.release().await.unwrap();
    }
}

/// Which sibling keeps a single try from the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sibling {
    /// It was woken, and is not polled.
    Late,
    /// Its hold was lost, and its body has not been dropped yet.
    Lost,
    /// Its lock was taken by force, and its body has not been dropped yet.
    Forced,
}

/// How long a reader's try waits behind a sibling that holds the lock alone, or has lost it and is still there.
async fn try_waits_behind(sibling: Sibling, bug: Option<Mutant>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    let (locks, other) = (connect(&network, "p"), connect(&network, "q"));
    let request = || locks.lock("k", &0).timeout(Duration::from_secs(9));
    let held = request().acquire().await.unwrap();
    let mut late = std::pin::pin!(request().acquire());
    let mut body = std::pin::pin!(request().run(std::future::pending::<()>()));
    if sibling == Sibling::Late {
        assert!(late.as_mut().now_or_never().is_none());
        held.release().await.unwrap();
    } else {
        held.release().await.unwrap();
        assert!(timeout(Duration::from_millis(20), body.as_mut()).await.is_err());
        if sibling == Sibling::Lost {
            let slot = locks.core().table().get("k:0").unwrap();
            locks.core().revoke(&slot, None, LossReason::ShutDown);
        } else {
            // It waits for the body.
            assert!(timeout(Duration::from_millis(5), other.force_release("k", &0)).await.is_err());
        }
    }
    let begin = Instant::now();
    let tried = locks.lock("k", &0).read().try_acquire().await;
    assert!(matches!(tried, Ok(None)), "{sibling:?}: {tried:?}");
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_single_try_does_not_take_what_a_sibling_has_in_another_mode_for_a_lock_that_is_just_released() {
    for sibling in [Sibling::Late, Sibling::Lost, Sibling::Forced] {
        let waited = try_waits_behind(sibling, None).await;
        assert!(waited < Duration::from_millis(10), "{sibling:?}: {waited:?}");
    }
    for sibling in [Sibling::Late, Sibling::Lost] {
        let waited = try_waits_behind(sibling, Some(Mutant::OtherModeIsReleased)).await;
        assert!(waited > Duration::from_millis(40), "{sibling:?}: {waited:?}");
    }
}

/// What waits behind a single try of its process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nobody,
    Waiter,
    /// A waiter that is not polled when it gets the lock.
    LateWaiter,
}

/// The outcome of a single try that is not polled before the other process, which holds the lock, has released it. Also how long the
/// waiter behind it waited after the release.
async fn late_try(behind: Behind) -> (Result<bool, LockError>, Duration) {
    let (_time, network) = world();
    let (locks, other) = (connect(&network, "p"), connect(&network, "q"));
    let request = || locks.lock("k", &0).timeout(Duration::from_secs(9));
    request().acquire().await.unwrap().release().await.unwrap();
    let held = other.lock("k", &0).acquire().await.unwrap();
    let mut tried = std::pin::pin!(locks.lock("k", &0).try_acquire());
    assert!(tried.as_mut().now_or_never().is_none());
    let mut waiter = std::pin::pin!(request().acquire());
    let keeper_has_repeated_the_ask = sleep(Duration::from_millis(200));
    if behind == Behind::Nobody {
        keeper_has_repeated_the_ask.await;
    } else {
        tokio::select! {
            biased;
            () = keeper_has_repeated_the_ask => {}
            _ = waiter.as_mut() => panic!("the lock is held"),
        }
    }
    let released = Instant::now();
    held.release().await.unwrap();
    if behind == Behind::Waiter {
        drop(waiter.await);
    }
    let waited = released.elapsed();
    sleep(Duration::from_millis(5)).await;
    (tried.await.map(|guard| guard.is_some()), waited)
}

#[tokio::test(start_paused = true)]
async fn a_single_try_that_is_polled_late_does_not_get_a_lock_that_was_held_when_it_began() {
    for behind in [Behind::Nobody, Behind::LateWaiter] {
        let (tried, _) = late_try(behind).await;
        assert!(matches!(tried, Ok(false) | Err(LockError::Backend { .. })), "{tried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_an_unpolled_single_try_goes_on_after_its_repetition() {
    let (_, waited) = late_try(Behind::Waiter).await;
    assert!(waited < Duration::from_millis(10), "{waited:?}");
}

/// The lock was granted to the try, and then taken from it before its lease was confirmed for as long as others have to be kept out. The
/// lock is free now.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_loses_its_lock_before_its_hold_begins_asks_again() {
    for bug in [None, Some(Mutant::LossIsAnswer)] {
        let _seeded = Seeded::begin(bug);
        let mut failed = 0;
        for millis in 0..40 {
            let (_time, network) = world();
            let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
            for locks in [&locks, &others] {
                locks.inspect("k", &0).await.unwrap();
            }
            network.set_conditions(Conditions { delay: Duration::from_millis(8), ..Conditions::default() });
            let trying = locks.lock("k", &0).at_least(SECOND * 9).try_acquire();
            let forcing = async {
                sleep(Duration::from_millis(millis)).await;
                others.force_release("k", &0).await.unwrap()
            };
            let (tried, _) = tokio::join!(trying, forcing);
            failed += u32::from(tried.is_err());
        }
        assert_eq!(failed == 0, bug.is_none(), "{bug:?}: {failed}");
    }
}

/// The host was suspended, and meanwhile the lingering lease expired.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_finds_a_lease_which_is_gone_still_asks_for_the_lock() {
    for (bug, is_had) in [(None, true), (Some(Mutant::LeaseThatIsGoneIsAnswer), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        let request = || locks.lock("k", &0).linger(SECOND * 2);
        request().acquire().await.unwrap().release().await.unwrap();
        suspend(SECOND * 4);
        let tried = request().try_acquire().await;
        assert_eq!(tried.is_ok_and(|guard| guard.is_some()), is_had, "{bug:?}");
    }
}

/// The host was suspended while the grant was on its way. By then the lock is free.
#[tokio::test(start_paused = true)]
async fn a_single_try_whose_lease_was_over_before_its_grant_arrived_reports_it() {
    for bug in [None, Some(Mutant::OutlivedAtLastUntold)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        locks.inspect("k", &0).await.unwrap();
        network.move_away(Duration::from_millis(16));
        let trying = locks.lock("k", &0).expire(Duration::from_millis(150)).try_acquire();
        let suspending = async {
            sleep(Duration::from_millis(12)).await;
            suspend(Duration::from_millis(510));
        };
        let (tried, ()) = tokio::join!(trying, suspending);
        let Err(LockError::Backend { problem, .. }) = tried else { panic!("{bug:?}: {tried:?}") };
        assert_eq!(problem.to_string().contains("over when its grant came"), bug.is_none(), "{problem}");
    }
}

/// The server stalled, and executed the ask just after the try had given up, by the server's clock.
#[tokio::test(start_paused = true)]
async fn a_single_try_whose_ask_was_executed_too_late_does_not_report_busy() {
    for (bug, is_busy) in [(None, false), (Some(Mutant::AnyAnswerIsNo), true)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        network.server(|server, _| server.patch("if not_after > 0 and now() > not_after then", "if true then"));
        let tried = locks.lock("k", &0).fenced(true).try_acquire().await.map(|guard| guard.is_some());
        match tried {
            Err(LockError::Backend { .. }) if !is_busy => {}
            Ok(false) if is_busy => {}
            tried => panic!("{bug:?}: {tried:?}"),
        }
    }
}

/// The try was granted the lock, but not polled while another process waited. The lock is free when it is polled.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_is_polled_too_late_for_its_grant_asks_again() {
    for (bug, is_busy) in [(None, false), (Some(Mutant::AnyAnswerIsNo), true)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (locks, other) = (connect(&network, "p"), connect(&network, "q"));
        for locks in [&locks, &other] {
            locks.inspect("k", &0).await.unwrap();
        }
        let mut tried = std::pin::pin!(locks.lock("k", &0).try_acquire());
        assert!(tried.as_mut().now_or_never().is_none());
        let waiting = other.lock("k", &0).timeout(SECOND).acquire();
        timeout(Duration::from_millis(400), waiting).await.unwrap().unwrap().release().await.unwrap();
        match tried.await {
            // It is free, and there is time to ask for it again.
            Ok(Some(_)) if !is_busy => {}
            Ok(None) if is_busy => {}
            tried => panic!("{bug:?}: {tried:?}"),
        }
    }
}
