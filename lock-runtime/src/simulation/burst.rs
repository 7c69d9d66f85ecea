//! Bursts: many tasks each acquire their own lock, or set of locks, at the same moment, and the connection has less room than there are tasks.

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
/// The server's distance: longer than the events of one moment may take.
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// Enough for all of them, with a round trip per claim and little more.
const ENOUGH: Duration = Duration::from_secs(10);

/// What disturbs a burst.
#[derive(Clone, Copy, Default)]
struct Trouble {
    /// How many keys each task locks together with its first.
    more_keys: u32,
    /// How many of the keys another process holds.
    busy: u32,
    /// How long the server answers no command.
    hangs: Duration,
}

/// The outcome of each task, and how many commands were sent.
fn burst(timeout: Duration, trouble: Trouble, bug: Option<Mutant>) -> (Vec<Result<(), LockError>>, u64) {
    let (outcomes, commands, _) = timed_burst(timeout, trouble, bug);
    (outcomes, commands)
}

/// Also returns how long it took.
fn timed_burst(
    timeout: Duration,
    trouble: Trouble,
    bug: Option<Mutant>,
) -> (Vec<Result<(), LockError>>, u64, Duration) {
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
        let (before, start) = (locks.stats().commands, Instant::now());
        let each = 1 + trouble.more_keys;
        let tasks = (0..TASKS / each).map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let begin = Instant::now();
                let keys = task * each..(task + 1) * each;
                let request = if each == 1 { locks.lock("k", &task) } else { locks.lock_all("k", keys) };
                let outcome = request.timeout(timeout).run(async { sleep(Duration::from_millis(1)).await }).await;
                assert!(
                    begin.elapsed() <= timeout + Duration::from_millis(100) + 2 * ROUND_TRIP,
                    "{:?}",
                    begin.elapsed()
                );
                outcome
            })
        });
        let outcomes: Vec<_> = join_all(tasks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
        (outcomes, locks.stats().commands - before, start.elapsed())
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
        // A claim and a release for each task; no withdrawals.
        assert!(commands <= u64::from(TASKS) * 4, "{commands}");
    }
}

/// Neither fails, nor takes longer than the same keys by themselves.
#[test]
fn sets_of_keys_wait_for_room_together() {
    let (_, commands, usual) = timed_burst(ENOUGH, Trouble::default(), None);
    let trouble = Trouble { more_keys: 2, ..Trouble::default() };
    for (bug, is_good) in [(None, true), (Some(Mutant::RoomCostsTime), false)] {
        let (outcomes, of_sets, took) = timed_burst(ENOUGH, trouble, bug);
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        let costs = format!("{failed} fail, {took:?} and {of_sets} commands, usually {usual:?} and {commands}");
        assert_eq!(failed == 0 && took <= usual * 3 / 2 && of_sets <= commands * 3 / 2, is_good, "{bug:?}: {costs}");
    }
}

/// The first ones get the lock, and the others report that they could not ask. What was not sent is not withdrawn.
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
fn an_ask_for_a_taken_lock_fails_as_busy_and_others_go_on() {
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
