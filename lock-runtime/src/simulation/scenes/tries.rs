//! Single tries: an acquire with a timeout of zero is told what is true, after one answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::{Conditions, SECOND, world};
use crate::LockError;
use crate::loss_reason::LossReason;
use crate::mutants::{Mutant, Seeded};
use crate::simulation::process::connect;
use crate::simulation::time::suspend;

#[tokio::test(start_paused = true)]
async fn a_single_try_that_only_siblings_stood_before_is_told_of_a_silent_server() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(Duration::from_secs(9));
    let siblings = async {
        loop {
            // Each has the turn at once, asks, and is gone before there could be an answer.
            let _ = timeout(Duration::from_millis(10), locks.lock("k", &0).try_acquire()).await;
        }
    };
    let tried = tokio::select! {
        biased;
        () = siblings => None,
        tried = async { locks.lock("k", &0).try_acquire().await } => Some(tried),
    };
    assert!(matches!(tried, Some(Err(LockError::Backend { .. }))), "{tried:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_try_has_its_turn_as_soon_as_the_sibling_before_it_is_gone() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
    network.freeze(Duration::from_millis(5));
    let begin = Instant::now();
    let sibling = async {
        let _ = timeout(Duration::from_millis(1), locks.lock("k", &0).try_acquire()).await;
    };
    let ((), tried) = tokio::join!(biased; sibling, async { locks.lock("k", &0).try_acquire().await });
    assert!(matches!(tried, Ok(Some(_))), "{tried:?}");
    assert!(begin.elapsed() < Duration::from_millis(20), "{:?}", begin.elapsed());
}

/// The server has moved away since the connection was made, so 50 ms look like time enough for an answer.
#[tokio::test(start_paused = true)]
async fn a_single_try_of_a_free_lock_is_had_though_a_sibling_had_too_little_time() {
    for (bug, is_had) in [(None, true), (Some(Mutant::BriefFailureIsAnswer), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
        network.move_away(Duration::from_millis(120));
        let sibling = locks.lock("k", &0).timeout(Duration::from_millis(50)).acquire();
        let (sibling, tried) = tokio::join!(biased; sibling, async { locks.lock("k", &0).try_acquire().await });
        assert!(matches!(sibling, Err(LockError::Backend { .. })), "{sibling:?}");
        assert_eq!(matches!(tried, Ok(Some(_))), is_had, "{bug:?}: {tried:?}");
    }
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

/// The hold of a sibling may begin long after the turn: from afar, fencing tokens are drawn before.
#[tokio::test(start_paused = true)]
async fn a_single_try_is_told_of_a_sibling_as_soon_as_it_holds() {
    let (_time, network) = world();
    network.move_away(Duration::from_millis(200));
    let locks = connect(&network, "p");
    let held = locks.lock("k", &0).timeout(Duration::from_secs(3)).acquire().await.unwrap();
    let waiting = locks.lock("k", &0).timeout(Duration::from_secs(3)).fenced(true).acquire();
    let sibling = async {
        let guard = waiting.await.unwrap();
        sleep(Duration::from_millis(220)).await;
        drop(guard);
    };
    let single = async {
        sleep(Duration::from_millis(1)).await;
        held.release().await.unwrap();
        sleep(Duration::from_millis(1)).await;
        let begin = Instant::now();
        let tried = locks.lock("k", &0).try_acquire().await;
        assert!(matches!(tried, Ok(None)), "{tried:?}");
        assert!(begin.elapsed() < Duration::from_millis(210), "{:?}", begin.elapsed());
    };
    tokio::join!(biased; sibling, single);
}

/// From afar, what is left of a single try's time is too short for an answer when a sibling has drawn a fencing token and held. The
/// sibling may be the first that ever used the lock, and then nothing of the lock is left here when it is gone.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_a_sibling_left_too_little_time_is_told_of_a_busy_lock() {
    for (bug, is_first, is_soon) in
        [(None, false, true), (None, true, true), (Some(Mutant::SiblingsHoldForgotten), true, false)]
    {
        let (_time, network) = world();
        let _seeded = Seeded::begin(bug);
        network.move_away(Duration::from_millis(400));
        let locks = connect(&network, "p");
        let request = |fenced| locks.lock("k", &0).timeout(Duration::from_secs(3)).fenced(fenced);
        let _connected = locks.lock("warm", &0).timeout(Duration::from_secs(3)).acquire().await.unwrap();
        let held = if is_first { None } else { Some(request(false).acquire().await.unwrap()) };
        // It is gone before anybody else can look.
        let sibling = async { request(true).acquire().await.unwrap().release().await.unwrap() };
        let single = async {
            drop(held);
            sleep(Duration::from_millis(1)).await;
            let begin = Instant::now();
            (locks.lock("k", &0).try_acquire().await, begin.elapsed())
        };
        let ((), (tried, took)) = tokio::join!(biased; sibling, single);
        assert!(matches!(tried, Ok(None)), "{bug:?}, {is_first}: {tried:?}");
        assert_eq!(took < Duration::from_millis(450), is_soon, "{bug:?}, {is_first}: {took:?}");
    }
}

/// From afar, a sibling whose time is over before it has a fencing token leaves a single try too little time for its own one.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_had_no_answer_is_not_told_of_a_blocked_runtime() {
    let (_time, network) = world();
    network.move_away(Duration::from_millis(400));
    let locks = connect(&network, "p");
    let request = |timeout| locks.lock("k", &0).timeout(Duration::from_millis(timeout)).fenced(true);
    let held = request(3000).acquire().await.unwrap();
    let sibling = async { request(1150).acquire().await.unwrap_err() };
    let single = async {
        sleep(Duration::from_secs(1)).await;
        drop(held);
        sleep(Duration::from_millis(1)).await;
        request(0).try_acquire().await.unwrap_err()
    };
    let (left, error) = tokio::join!(biased; sibling, single);
    assert!(left.is_timeout(), "{left:?}");
    assert!(error.to_string().contains("no answer from the server within 500ms"), "{error}");
}

/// From afar the time of a single try is over while it draws its fencing token: the owner has yielded, and nothing is wrong.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_the_owner_left_too_little_time_is_told_of_a_busy_lock() {
    let (_time, network) = world();
    network.move_away(Duration::from_millis(130));
    let (owner, other) = (connect(&network, "p"), connect(&network, "q"));
    let lingering = owner.lock("k", &0).timeout(Duration::from_secs(3)).linger(Duration::from_secs(1));
    lingering.acquire().await.unwrap().release().await.unwrap();
    let _connected = other.lock("warm", &0).timeout(Duration::from_secs(3)).acquire().await.unwrap();
    let tried = other.lock("k", &0).fenced(true).try_acquire().await;
    assert!(matches!(tried, Ok(None)), "{tried:?}");
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
async fn late_try(behind: Behind, bug: Option<Mutant>) -> (Result<bool, LockError>, Duration) {
    let _seeded = Seeded::begin(bug);
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
    for (behind, bug) in [(Behind::Nobody, Mutant::RepeatedTryQueues), (Behind::LateWaiter, Mutant::LateTryTakesAll)] {
        let (tried, _) = late_try(behind, None).await;
        assert!(matches!(tried, Ok(false) | Err(LockError::Backend { .. })), "{tried:?}");
        let (tried, _) = late_try(behind, Some(bug)).await;
        assert!(matches!(tried, Ok(true)), "{bug:?}: {tried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_single_try_that_is_not_polled_goes_on_after_its_repetition() {
    let (_, waited) = late_try(Behind::Waiter, None).await;
    assert!(waited < Duration::from_millis(10), "{waited:?}");
    let (_, waited) = late_try(Behind::Waiter, Some(Mutant::RefusedTryHasTurn)).await;
    assert!(waited > Duration::from_millis(20), "{waited:?}");
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
async fn a_single_try_that_comes_too_late_for_its_own_lock_is_told_so() {
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
            Err(LockError::Backend { problem, .. }) if !is_busy => {
                assert!(problem.to_string().contains("polled again only"), "{problem}");
            }
            Ok(None) if is_busy => {}
            tried => panic!("{bug:?}: {tried:?}"),
        }
    }
}

/// It waited for a sibling that is gone, and another task has had the lock meanwhile. The lease lingers here.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_is_polled_long_after_its_time_takes_no_lease_that_it_finds() {
    for (bug, is_had) in [(None, false), (Some(Mutant::LateTryFindsLease), true)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        locks.inspect("k", &0).await.unwrap();
        let request = || locks.lock("k", &0).linger(SECOND);
        let mut sibling = Box::pin(request().acquire());
        assert!(sibling.as_mut().now_or_never().is_none());
        let mut tried = std::pin::pin!(request().try_acquire());
        assert!(tried.as_mut().now_or_never().is_none());
        drop(sibling);
        sleep(SECOND * 5).await;
        request().acquire().await.unwrap().release().await.unwrap();
        match tried.await {
            Err(LockError::Backend { problem, .. }) if !is_had => {
                assert!(problem.to_string().contains("polled again only"), "{problem}");
            }
            Ok(Some(_)) if is_had => {}
            tried => panic!("{bug:?}: {tried:?}"),
        }
    }
}
