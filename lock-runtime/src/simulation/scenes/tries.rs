//! Single tries: an acquire with a timeout of zero is told what is true, after one answer.

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

/// It does not wait for what the sibling is told.
#[tokio::test(start_paused = true)]
async fn a_single_try_beside_a_sibling_that_asks_is_told_at_once_that_the_lock_is_busy() {
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

/// The table "At a distance" in docs/topologies.md: at 400 ms the default command timeout leaves little more than the answer takes.
#[tokio::test(start_paused = true)]
async fn a_single_try_of_a_free_lock_is_had_at_every_distance_with_the_default_settings() {
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

/// Who of its process keeps a single try from the lock, and for how long the try is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sibling {
    /// It was called, and is not polled.
    Late,
    /// Its hold was lost, and its body is not dropped yet.
    Lost,
    /// Its lock was taken by force, and its body is not dropped yet.
    Forced,
}

/// How long a try waits that reads, behind a sibling that has the lock alone, or had it and is not gone.
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

/// Who waits behind a single try of its process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nobody,
    Waiter,
    /// One that is not polled when it gets the lock.
    LateWaiter,
}

/// What a single try gets when another process has the lock, and the try is not polled before that process has released it. Also how
/// long the waiter behind it waited after the release.
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
async fn a_single_try_that_is_polled_late_does_not_get_what_was_held_when_it_began() {
    for behind in [Behind::Nobody, Behind::LateWaiter] {
        let (tried, _) = late_try(behind).await;
        assert!(matches!(tried, Ok(false) | Err(LockError::Backend { .. })), "{tried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_single_try_that_is_not_polled_goes_on_after_its_repetition() {
    let (_, waited) = late_try(Behind::Waiter).await;
    assert!(waited < Duration::from_millis(10), "{waited:?}");
}

/// The lock was granted, and somebody took it from the try before its lease was confirmed for as long as others are to be kept out.
/// Nobody has it now.
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

/// The host was suspended, and the lease that lingered here ended meanwhile.
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

/// The host was suspended while the grant was on its way. Nobody has the lock any more.
#[tokio::test(start_paused = true)]
async fn a_single_try_whose_lease_was_over_before_its_grant_came_is_told_so() {
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

/// The server stood still, and came to the ask when the try had just given up by the server's clock.
#[tokio::test(start_paused = true)]
async fn a_single_try_to_whose_ask_the_server_came_too_late_is_not_told_that_the_lock_is_busy() {
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

/// The try had the lock, and did not come for it while another process waited. Nobody has the lock when the try comes.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_comes_too_late_for_its_own_lock_asks_again() {
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
