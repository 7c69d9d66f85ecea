//! Rule 23: a lock that rests after a hold with `at_least`. Its lease lasts only for the rest, whatever happens to the command that
//! shortens it, and to the process. Each test also shows what happens with a bug.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::network::Network;
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{LockManager, LockRequest};

/// Longer than a shutdown lets a body run.
const KEPT: Duration = Duration::from_secs(10);
/// The length of the hold, and the time of other events before or after its end.
const HELD: Duration = Duration::from_secs(1);
/// What a few messages take.
const MESSAGES: Duration = Duration::from_millis(20);
/// How late a waiting process may be without a message: it asks every second.
const BEAT: Duration = Duration::from_secs(1);

/// What happens to the holder's process.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lives,
    /// The command that shortens the lease is executed, but its reply is lost: the command is repeated.
    AnswerLost,
    /// The command is sent a second late.
    CutOff,
    /// It is shut down after the hold.
    ShutDown,
    /// It is shut down during the hold, whose body is dropped.
    ShutDownInside,
    /// It dies while the lock rests.
    Dies,
    /// A replica takes over from the master before it has learned that the lock rests.
    ReplicaTakesOver,
}

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("k", &0).timeout(KEPT * 100)
}

/// When another process gets the lock, counted from the start of the hold. It has waited since just after that start.
async fn passed_on(fate: Fate) -> Duration {
    let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let [held, other] = ["p", "q"].map(|name| connect(&network, name));
    let body = {
        let (held, network) = (held.clone(), Arc::clone(&network));
        async move {
            sleep(HELD).await;
            match fate {
                Fate::AnswerLost => network.deafen("p"),
                Fate::CutOff => network.part("p", HELD),
                Fate::ShutDownInside => std::future::pending().await,
                _ => drop(held),
            }
        }
    };
    let start = Instant::now();
    let job = tokio::spawn(request(&held).at_least(KEPT).run(body));
    sleep(MESSAGES).await;
    let waits = tokio::spawn(request(&other).acquire());
    sleep(HELD).await;
    match fate {
        Fate::ShutDown | Fate::ShutDownInside => {
            held.shutdown().await;
            network.part("p", KEPT * 100);
        }
        Fate::Dies => network.part("p", KEPT * 100),
        Fate::ReplicaTakesOver => {
            let owner = format!("{}.1@p", held.core().process_id());
            network.execute(&["SET", "k:0", &owner, "PX", "30000"]);
        }
        _ => {}
    }
    waits.await.unwrap().unwrap().release().await.unwrap();
    let passed_on = start.elapsed();
    let _ = job.await.unwrap();
    passed_on
}

/// A process may end as soon as its hold has ended: others are kept out for the rest of the time, but not for the rest of the lease.
#[tokio::test(start_paused = true)]
async fn a_process_that_exits_after_its_hold_leaves_a_lock_that_rests() {
    for (bug, rests) in [(None, true), (Some(Mutant::RestNotAwaited), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
        let [held, other] = ["p", "q"].map(|name| connect(&network, name));
        request(&other).run(async {}).await.unwrap();
        request(&held).at_least(KEPT).run(async {}).await.unwrap();
        network.part("p", KEPT * 100);
        let seen = other.inspect("k", &0).await.unwrap().unwrap();
        assert_eq!(seen.rests && seen.remaining <= KEPT + HELD, rests, "{bug:?}: {seen:?}");
    }
}

/// It asks with a plain claim. The reply has the owner, but no time.
#[tokio::test(start_paused = true)]
async fn a_single_try_of_a_lock_that_rests_reports_when_the_rest_ends() {
    for (bug, is_told) in [(None, true), (Some(Mutant::RestWithoutEnd), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
        let [held, other] = ["p", "q"].map(|name| connect(&network, name));
        request(&held).at_least(KEPT).run(async {}).await.unwrap();
        sleep(HELD).await;
        let refused = other.lock("k", &0).timeout(Duration::ZERO).acquire().await.unwrap_err();
        let left = refused.retry_after().unwrap_or_default();
        assert_eq!(left <= KEPT && left + HELD + MESSAGES >= KEPT, is_told, "{bug:?}: {refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_rests_for_the_rest_of_its_time_and_no_longer() {
    let cases = [
        (Fate::Lives, MESSAGES, &[Mutant::RestNotPassedOn, Mutant::RestNotSent][..]),
        (Fate::AnswerLost, MESSAGES, &[Mutant::RestNotPassedOn]),
        (Fate::CutOff, MESSAGES, &[Mutant::RestNotPassedOn]),
        (Fate::ShutDown, BEAT, &[Mutant::RestNotSent]),
        (Fate::ShutDownInside, BEAT, &[Mutant::RestNotSent]),
        (Fate::Dies, BEAT, &[Mutant::RestNotSent]),
        (Fate::ReplicaTakesOver, MESSAGES, &[Mutant::RestUnseenByReplica]),
    ];
    for (fate, late, bugs) in cases {
        for bug in std::iter::once(None).chain(bugs.iter().copied().map(Some)) {
            let _seeded = Seeded::begin(bug);
            let passed_on = passed_on(fate).await;
            assert!(passed_on >= KEPT, "{fate:?} {bug:?}: {passed_on:?}");
            assert_eq!(passed_on <= KEPT + late, bug.is_none(), "{fate:?} {bug:?}: {passed_on:?}");
        }
    }
}
