//! An acquire whose time is over gets a true answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{SECOND, is_locked, kept, world, world_on};
use crate::mutants::{Mutant, Seeded};
use crate::simulation::process::connect;
use crate::simulation::seeded::Bug;
use crate::simulation::servers::model_server;
use crate::{LockError, LockManager};

/// Its own ask was queued. Then an administrator takes a right from the user.
#[tokio::test(start_paused = true)]
async fn a_waiter_reports_that_the_server_refused_what_the_keeper_repeated() {
    for (bug, is_told_soon) in [(None, true), (Some(Mutant::RefusedRepetitionUntold), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (owner, locks) = (connect(&network, "o"), connect(&network, "p"));
        let _held = owner.lock("k", &0).acquire().await.unwrap();
        let begin = Instant::now();
        let refused = async {
            sleep(Duration::from_millis(100)).await;
            network.server(|server, _| {
                server.patch("local function ask", "error({ err = 'NOPERM no' })\nlocal function ask");
            });
        };
        let waiting = locks.lock("k", &0).timeout(Duration::from_secs(9)).acquire();
        let (waited, ()) = tokio::join!(biased; waiting, refused);
        let is_refused =
            matches!(&waited, Err(LockError::Backend { problem, .. }) if problem.to_string().contains("NOPERM"));
        assert!(is_refused, "{bug:?}: {waited:?}");
        assert_eq!(begin.elapsed() < Duration::from_secs(2), is_told_soon, "{bug:?}");
    }
}

/// The keeper repeats both asks in one command, which the server refuses for one of the keys.
#[tokio::test(start_paused = true)]
async fn a_refusal_goes_to_the_task_whose_key_it_is_for() {
    const REFUSES_ONE: &str =
        "for _, key in ipairs(KEYS) do if key == 'k:1' then error({ err = 'NOPERM no' }) end end\n";
    const BEGIN: &str = "local replies = { now() }";
    for (bug, is_told) in [(None, false), (Some(Mutant::RefusedTogether), true)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (owner, locks) = (connect(&network, "o"), connect(&network, "p"));
        let _held = [owner.lock("k", &0).acquire().await.unwrap(), owner.lock("k", &1).acquire().await.unwrap()];
        let refused = async {
            sleep(Duration::from_millis(100)).await;
            network.server(|server, _| server.patch(BEGIN, &format!("{REFUSES_ONE}{BEGIN}")));
        };
        let waiting = |key: u32| {
            let acquiring = locks.lock("k", &key).timeout(Duration::from_secs(9)).acquire();
            timeout(Duration::from_secs(3), acquiring)
        };
        let (allowed, denied, ()) = tokio::join!(biased; waiting(0), waiting(1), refused);
        assert!(matches!(denied, Ok(Err(LockError::Backend { .. }))), "{bug:?}: {denied:?}");
        assert_eq!(allowed.is_ok(), is_told, "{bug:?}: {allowed:?}");
    }
}

/// The task waits for its connection, and is polled again long after its time. Nothing has been sent by then.
#[tokio::test(start_paused = true)]
async fn a_task_that_was_late_for_a_command_that_was_never_sent_does_not_report_busy() {
    for (bug, is_told) in [(None, true), (Some(Mutant::SilenceIsBusy), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        network.move_away(Duration::from_millis(60));
        let locks = connect(&network, "p");
        let mut acquiring = pin!(locks.lock("k", &0).timeout(Duration::from_millis(30)).acquire());
        assert!(acquiring.as_mut().now_or_never().is_none(), "it connects");
        sleep(Duration::from_secs(2)).await;
        let told = acquiring.await;
        assert_eq!(matches!(told, Err(LockError::Backend { .. })), is_told, "{bug:?}: {told:?}");
    }
}

/// Whether a hold keeps its lock if its task read the grant this many milliseconds late. Meanwhile the keeper has repeated the ask, which
/// the server refuses.
async fn outlasts_a_refused_repetition(late: u64, bug: Option<Mutant>) -> bool {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    network.move_away(Duration::from_millis(60));
    let locks = connect(&network, "p");
    locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
    network.server(|server, _| server.patch("local function ask", "error({ err = 'NOPERM no' })\nlocal function ask"));
    let acquiring = kept(&locks, 0, false);
    sleep(Duration::from_millis(late)).await;
    let guard = acquiring.await.unwrap();
    sleep(SECOND).await;
    let is_kept = is_locked(&network, "k:0");
    drop(guard);
    is_kept
}

#[tokio::test(start_paused = true)]
async fn a_refused_repetition_takes_the_lock_from_no_hold() {
    for (bug, is_kept) in [(None, true), (Some(Mutant::RefusedAskReleased), false)] {
        let mut kept = Vec::new();
        for late in (70..300).step_by(10) {
            kept.push(outlasts_a_refused_repetition(late, bug).await);
        }
        assert_eq!(kept.iter().all(|kept| *kept), is_kept, "{bug:?}: {kept:?}");
    }
}

/// Its connection broke. The task that should ask again is not polled, and another one waits behind it.
#[tokio::test(start_paused = true)]
async fn a_process_is_notified_of_its_grant_also_when_the_task_that_asked_is_late() {
    {
        let (_time, network) = world();
        let (owner, locks) = (connect(&network, "o"), connect(&network, "p"));
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        let held = owner.lock("k", &0).acquire().await.unwrap();
        let _late = kept(&locks, 0, false);
        let next = tokio::spawn(locks.lock("k", &0).timeout(Duration::from_secs(9)).acquire());
        sleep(SECOND).await;
        network.cut(None);
        sleep(Duration::from_millis(100)).await;
        held.release().await.unwrap();
        let released = Instant::now();
        drop(next.await.unwrap().unwrap());
        assert!(released.elapsed() < Duration::from_millis(200), "{:?}", released.elapsed());
    }
}

/// How long a process waits for a lock that is handed over inside another process, without a command, after that process's connections
/// broke.
async fn waits_behind_hand_overs(bug: Option<Mutant>, server: Option<Bug>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world_on(model_server(server, None));
    let (busy, other) = (connect(&network, "b"), connect(&network, "o"));
    let pass_on = |locks: LockManager| async move {
        loop {
            let held = locks.lock("k", &0).timeout(SECOND * 9).acquire().await;
            sleep(Duration::from_millis(2)).await;
            drop(held);
        }
    };
    let tasks: JoinSet<()> = (0..4).map(|_| pass_on(busy.clone())).collect();
    sleep(Duration::from_millis(100)).await;
    network.cut(Some("b"));
    sleep(Duration::from_millis(100)).await;
    let begin = Instant::now();
    let waited = other.lock("k", &0).timeout(SECOND).acquire().await;
    drop((tasks, waited));
    begin.elapsed()
}

/// A process that has a lock sends nothing for it. So it learns of a waiter from the connection that is made again, or meanwhile from its
/// other connection.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_noticed_also_after_the_connections_of_the_holder_broke() {
    let untold = Bug::Scripts(&[("or not keeper_first and publish_plain(address .. ':keeper', message)", "")]);
    let deaf = Some(Mutant::HolderNotReconnected);
    for (bug, server, is_heard) in
        [(None, None, true), (deaf, None, true), (None, Some(untold), true), (deaf, Some(untold), false)]
    {
        let waited = waits_behind_hand_overs(bug, server).await;
        assert_eq!(waited < Duration::from_millis(500), is_heard, "{bug:?} {server:?}: {waited:?}");
    }
}
