//! Bursts: many tasks that ask for locks of their own at one moment, and less room on the connection than there are tasks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use lock_wire::simulation::set_room;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::network::Network;
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{ErrorKind, LockError};

const TASKS: u32 = 200;
const ROOM: usize = 8;
/// Longer than what goes on at the same time may take.
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// All of them, with a round trip for each claim and little more.
const ENOUGH: Duration = Duration::from_secs(10);

/// What befalls a burst.
#[derive(Clone, Copy, Default)]
struct Trouble {
    /// So many of the keys are another process's.
    busy: u32,
    /// For so long the server answers nobody.
    hangs: Duration,
}

/// What each task gets within a timeout, and how many commands were sent.
fn burst(timeout: Duration, trouble: Trouble, bug: Option<Mutant>) -> (Vec<Result<(), LockError>>, u64) {
    let _seeded = Seeded::begin(bug);
    set_room(Some(ROOM));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outcomes = runtime.block_on(async {
        let _time = Simulated::begin();
        let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
        let (others, locks) = (connect(&network, "others"), connect(&network, "p"));
        let mut kept = Vec::new();
        for key in 0..trouble.busy {
            kept.push(others.lock("k", &key).acquire().await.unwrap());
        }
        locks.lock("warm", "up").acquire().await.unwrap().release().await.unwrap();
        network.move_away(ROUND_TRIP);
        network.freeze(trouble.hangs);
        let before = locks.stats().commands;
        let tasks = (0..TASKS).map(|key| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let begin = Instant::now();
                let outcome =
                    locks.lock("k", &key).timeout(timeout).run(async { sleep(Duration::from_millis(1)).await }).await;
                assert!(
                    begin.elapsed() <= timeout + Duration::from_millis(100) + 2 * ROUND_TRIP,
                    "{:?}",
                    begin.elapsed()
                );
                outcome
            })
        });
        let outcomes: Vec<_> = join_all(tasks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
        (outcomes, locks.stats().commands - before)
    });
    set_room(None);
    outcomes
}

#[test]
fn nobody_fails_whom_the_server_can_serve_in_his_own_time() {
    for (bug, are_served) in [(None, true), (Some(Mutant::NoRoomIsFailure), false)] {
        let (outcomes, commands) = burst(ENOUGH, Trouble::default(), bug);
        let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(failed.is_empty(), are_served, "{bug:?}: {} fail: {:?}", failed.len(), failed.first());
        // A claim, a release, and what is withdrawn of neither.
        assert!(commands <= u64::from(TASKS) * 4, "{commands}");
    }
}

/// The first ones have it, and who could not ask says so. Nothing is withdrawn that was not sent.
#[test]
fn who_could_not_ask_in_time_says_so_and_not_that_the_lock_is_busy_or_the_server_silent() {
    for (bug, is_told) in [(None, true), (Some(Mutant::SilenceIsBusy), false)] {
        let (outcomes, _) = burst(ENOUGH / 10, Trouble::default(), bug);
        let (served, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert!(served.len() >= ROOM && failed.len() > ROOM, "{} {}", served.len(), failed.len());
        let is_true = |outcome: &Result<(), LockError>| {
            outcome.as_ref().is_err_and(|error| {
                error.kind() == ErrorKind::Unavailable
                    && error.to_string().contains("asks for more than the server answers")
            })
        };
        assert_eq!(failed.iter().all(is_true), is_told, "{bug:?}: {:?}", failed.first());
    }
}

#[test]
fn who_asks_for_a_lock_that_is_taken_is_told_that_it_is_busy_and_others_go_on() {
    let trouble = Trouble { busy: 2 * u32::try_from(ROOM).unwrap(), ..Trouble::default() };
    let (outcomes, _) = burst(ENOUGH, trouble, None);
    for (key, outcome) in outcomes.iter().enumerate() {
        let is_busy = outcome.as_ref().is_err_and(LockError::is_timeout);
        assert_eq!(is_busy, key < 2 * ROOM, "{key}: {outcome:?}");
    }
}

#[test]
fn a_burst_is_served_when_a_server_that_hangs_is_back() {
    let trouble = Trouble { hangs: Duration::from_secs(3), ..Trouble::default() };
    let (outcomes, _) = burst(2 * ENOUGH, trouble, None);
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} fail: {:?}", failed.len(), failed.first());
}
