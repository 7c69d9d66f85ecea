//! What a server refuses: for how long, and for which locks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::future::join_all;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::{SECOND, is_locked, kept, world};
use crate::mutants::{Mutant, Seeded};
use crate::simulation::network::Conditions;
use crate::simulation::process::connect;
use crate::{LockError, LockManager};

/// The user has lost the right to one of the locks. The renewals of both go out in one command.
#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_whatever_else_the_server_refuses() {
    const LOOP: &str = "for i = 1, #KEYS do\n  local owner";
    for (bug, is_held) in [(None, true), (Some(Mutant::RefusedTogether), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        let hold = async |key: u32| locks.lock("k", &key).expire(SECOND).renew(true).acquire().await.unwrap();
        let (allowed, refused) = futures_util::future::join(hold(0), hold(1)).await;
        let refuses = "for _, key in ipairs(KEYS) do if key == 'k:1' then error({ err = 'NOPERM no' }) end end\n";
        network.server(|server, _| server.patch(LOOP, &format!("{refuses}{LOOP}")));
        sleep(SECOND * 5).await;
        assert_eq!((allowed.is_valid(), refused.is_valid()), (is_held, false), "{bug:?}");
    }
}

/// Each release that the user is allowed is done by a command of its own.
#[tokio::test(start_paused = true)]
async fn many_locks_whose_releases_are_refused_are_free_as_soon_as_one() {
    const DENIED: &str = "error({ err = \"NOPERM this user has no permissions to run the 'del' command\" })";
    for (bug, is_soon) in [(None, true), (Some(Mutant::ExplainedOneByOne), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        network.move_away(Duration::from_millis(50));
        let locks = connect(&network, "p");
        let hold = |key: u32| locks.lock("k", &key).timeout(SECOND * 9).acquire();
        let guards: Vec<_> = join_all((0..100).map(hold)).await.into_iter().map(Result::unwrap).collect();
        sleep(SECOND).await;
        network.server(|server, _| {
            for begin in ["local count = #ARGV", "local function release"] {
                server.patch(begin, &format!("{DENIED}\n{begin}"));
            }
        });
        let begin = Instant::now();
        drop(guards);
        let is_left = || network.server(ModelServer::snapshot).iter().any(|(key, _)| key.starts_with("k:"));
        while is_left() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(begin.elapsed() < SECOND, is_soon, "{bug:?}: {:?}", begin.elapsed());
    }
}

/// Rule 26: the lock is deleted, and then the process learns of a waiter. Just then another client's script is running.
#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_deleted_lock_is_notified_though_the_server_was_busy() {
    for (bug, is_told) in [(None, true), (Some(Mutant::BusyIsUnusable), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        network.server(|server, _| server.set_delete("DELIFEQ"));
        let (owner, locks) = (connect(&network, "o"), connect(&network, "p"));
        let guard = owner.lock("k", &0).acquire().await.unwrap();
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        network.set_conditions(Conditions { push_lost: 1.0, ..Conditions::default() });
        let _late = kept(&locks, 0, false);
        let next = tokio::spawn(locks.lock("k", &0).timeout(SECOND * 9).acquire());
        sleep(Duration::from_millis(100)).await;
        network.set_conditions(Conditions::default());
        network.server(|server, _| {
            server.patch("local function release", "error({ err = 'BUSY a script runs' })\nlocal function release");
        });
        let released = guard.release().await;
        assert!(!is_locked(&network, "k:0"));
        assert_eq!(matches!(released, Err(LockError::Backend { .. })), is_told, "{bug:?}: {released:?}");
        next.abort();
    }
}

/// Rule 26: a plain `SET` of a third process took the lock between its deletion and the release that passes it on.
#[tokio::test(start_paused = true)]
async fn an_owner_that_takes_a_deleted_lock_before_it_is_passed_on_is_notified_of_waiters() {
    for (is_bug, is_passed_over) in [(false, false), (true, true)] {
        let (_time, network) = world();
        network.server(|server, _| {
            server.set_delete("DELIFEQ");
            if is_bug {
                server.patch("  elseif not waited then", "  elseif false then");
            }
        });
        let (owner, waiter, third) = (connect(&network, "o"), connect(&network, "p"), connect(&network, "q"));
        let request = |locks: &LockManager| locks.lock("k", &0).timeout(SECOND * 9);
        let guard = request(&owner).acquire().await.unwrap();
        network.set_conditions(Conditions { push_lost: 1.0, ..Conditions::default() });
        let waits = tokio::spawn(request(&waiter).acquire());
        sleep(Duration::from_millis(50)).await;
        network.set_conditions(Conditions::default());
        network.execute(&["DEL", "k:0"]);
        let taken = third.lock("k", &0).try_acquire().await.unwrap().unwrap();
        let siblings = (0..9).map(|_| {
            let acquired = request(&third).acquire();
            tokio::spawn(async move {
                let _held = acquired.await.unwrap();
                sleep(Duration::from_millis(50)).await;
            })
        });
        let siblings: Vec<_> = siblings.collect();
        let _ = guard.release().await;
        let begin = Instant::now();
        taken.release().await.unwrap();
        drop(waits.await.unwrap().unwrap());
        assert_eq!(begin.elapsed() > Duration::from_millis(200), is_passed_over, "{:?}", begin.elapsed());
        join_all(siblings).await;
    }
}
