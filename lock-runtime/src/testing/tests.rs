//! Tests of the test kit.

use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use super::*;
use crate::LockError;
use crate::mutants::{Mutant, Seeded};
use crate::timing::CLAIM;

/// What is left of the lease once the keeper has confirmed it, or zero if it was lost before.
fn left_when_confirmed(guard: &LockGuard) -> Duration {
    let begun = Instant::now();
    loop {
        let left = guard.remaining();
        if left.is_zero() || left > CLAIM || begun.elapsed() > CLAIM {
            return left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A hold on a thread of a runtime whose clock a test has paused and moved ahead by a minute. Returns what is left of its lease, or why
/// it was lost.
async fn hold_on_a_thread(locks: &LockManager, bug: Option<Mutant>) -> Result<Duration, LockError> {
    let locks = locks.clone();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let held = spawn_blocking(move || {
        let _seeded = Seeded::begin(bug);
        locks.lock("p", "run").run_blocking(|| ())?;
        let guard = locks.lock("p", "guard").acquire_blocking()?;
        Ok(left_when_confirmed(&guard))
    });
    held.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thread_has_its_lock_in_the_time_of_its_runtime() {
    for (bug, lasts) in [(None, true), (Some(Mutant::ClockNotLent), false)] {
        for locks in [TestLocks::new().manager().clone(), LockManager::in_memory()] {
            let left = hold_on_a_thread(&locks, bug).await;
            assert_eq!(left.as_ref().is_ok_and(|left| *left > Duration::from_secs(20)), lasts, "{left:?}");
        }
    }
}

/// Several tests share a manager: one test's clock is stopped, the next one's is not.
#[test]
fn a_runtime_that_has_stopped_its_clock_ends_no_lock_of_another() {
    let locks = LockManager::in_memory();
    for is_paused in [true, false] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(is_paused).build().unwrap();
        let locks = locks.clone();
        let left = runtime.block_on(async move {
            spawn_blocking(move || {
                // The stopped clock lags by more than a claim.
                std::thread::sleep(CLAIM + Duration::from_millis(100));
                left_when_confirmed(&locks.lock("p", "k").acquire_blocking().unwrap())
            })
            .await
        });
        let left = left.unwrap();
        assert!(left > CLAIM, "{is_paused}: {left:?}");
    }
}

/// The runtime's clock is stopped while one of its threads waits.
#[tokio::test(start_paused = true)]
async fn a_thread_waits_as_long_as_it_wants_to_and_no_longer() {
    let test = TestLocks::new();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let _other = test.hold_elsewhere("p", "k").await;
    let locks = test.manager().clone();
    let waited = spawn_blocking(move || {
        let begun = Instant::now();
        let outcome = locks.lock("p", "k").timeout(Duration::from_millis(200)).run_blocking(|| ());
        (outcome, begun.elapsed())
    });
    let (outcome, waited) = waited.await.unwrap();
    assert!(outcome.unwrap_err().is_timeout() && waited >= Duration::from_millis(200), "{waited:?}");
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

/// Each hold has two renewals. The second and the fourth of all holds lose their locks.
#[tokio::test(start_paused = true)]
async fn several_renewals_lose_their_locks() {
    let test = TestLocks::new();
    test.lose_at_renewal(2);
    test.lose_at_renewal(4);
    for (key, lost) in [(1, true), (2, true), (3, false)] {
        let body = async {
            assert!(is_locked_here("p", &key));
            tokio::time::sleep(Duration::from_secs(15)).await;
        };
        let outcome = test.manager().lock("p", &key).expire(Duration::from_secs(30)).run(body).await;
        assert_eq!(outcome.is_err_and(|error| error.is_lost()), lost, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_goes_on_without_its_lock_does_not_have_it() {
    let test = TestLocks::new();
    let body = async {
        assert!(is_locked_here("p", "k"));
        test.lose("p", "k");
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_locked_here("p", "k")
    };
    let (request, is_locked) =
        (test.manager().lock("p", "k").on_lost(crate::OnLost::Continue), std::cell::Cell::new(true));
    let outcome = request.run(async { is_locked.set(body.await) }).await;
    assert!(outcome.unwrap_err().is_lost() && !is_locked.get());
}

#[test]
#[should_panic(expected = "counted from 1")]
fn there_is_no_renewal_zero() {
    TestLocks::new().lose_at_renewal(0);
}
