//! Connections that are cut again and again while a manager performs a single verb.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::{SECOND, is_locked, world};
use crate::mutants::{Mutant, Seeded};
use crate::simulation::network::Conditions;
use crate::simulation::process::connect;
use crate::{LockError, LockManager};

const VERBS: [&str; 10] = [
    "acquire",
    "try_acquire",
    "try_acquire fenced",
    "extend",
    "release",
    "into_ticket",
    "adopt",
    "release_ticket",
    "inspect",
    "force_release",
];
const KEPT: Duration = Duration::from_mins(1);
const MOMENT: Duration = Duration::from_millis(1);

/// The verb, after everything that it needs is done.
async fn prepare(verb: &str, locks: &LockManager) -> BoxFuture<'static, Result<(), LockError>> {
    let locks = locks.clone();
    let request = locks.lock("k", &0).expire(KEPT);
    match verb {
        "acquire" => async move { request.acquire().await.map(drop) }.boxed(),
        "try_acquire" => async move { request.try_acquire().await.map(|held| drop(held.unwrap())) }.boxed(),
        "try_acquire fenced" => {
            async move { request.fenced(true).try_acquire().await.map(|held| drop(held.unwrap())) }.boxed()
        }
        "inspect" => async move { locks.inspect("k", &0).await.map(drop) }.boxed(),
        "force_release" => async move { locks.force_release("k", &0).await.map(drop) }.boxed(),
        _ => {
            let guard = request.acquire().await.unwrap();
            match verb {
                "extend" => async move { guard.extend(KEPT * 2).await }.boxed(),
                "release" => async move { guard.release().await }.boxed(),
                "into_ticket" => async move { guard.into_ticket(KEPT).await.map(drop) }.boxed(),
                _ => {
                    let ticket = guard.into_ticket(KEPT).await.unwrap();
                    if verb == "adopt" {
                        async move { locks.adopt(ticket).await.map(drop) }.boxed()
                    } else {
                        async move { locks.release_ticket(ticket).await }.boxed()
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_verb_outlives_connections_that_are_cut_again_and_again_in_its_time() {
    let cuts = [
        Conditions { cut_before: 1.0, ..Conditions::default() },
        Conditions { cut_after: 1.0, ..Conditions::default() },
        Conditions { refused: 1.0, ..Conditions::default() },
    ];
    let all = VERBS
        .iter()
        .flat_map(|verb| cuts.iter().flat_map(move |cut| [(verb, cut, None), (verb, cut, Some(Mutant::SentTwice))]));
    for (verb, cut, bug) in all {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        let running = prepare(verb, &locks).await;
        sleep(SECOND * 2).await;
        network.set_conditions(*cut);
        network.cut(None);
        let running = tokio::spawn(running);
        sleep(SECOND / 8).await;
        network.set_conditions(Conditions::default());
        let outcome = running.await.unwrap();
        // Even with the bug, these two ask again by themselves.
        let is_done = bug.is_none() || ["acquire", "adopt"].contains(verb);
        assert_eq!(outcome.is_ok(), is_done, "{verb}, {cut:?}, {bug:?}: {outcome:?}");
    }
}

/// A verb that starts in an outage fails at once: the server has been unreachable for as long as a command may take.
#[tokio::test(start_paused = true)]
async fn a_verb_in_a_long_outage_fails_at_once() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    let verb = prepare("extend", &locks).await;
    network.set_conditions(Conditions { refused: 1.0, ..Conditions::default() });
    network.cut(None);
    assert!(locks.lock("k", &1).try_acquire().await.is_err());
    sleep(SECOND / 8).await;
    let start = Instant::now();
    verb.await.unwrap_err();
    assert!(start.elapsed() < SECOND / 4, "{:?}", start.elapsed());
}

/// Whether a lock stays whose task is gone. The reply to its claim was lost, and the repeated claim is refused, because the task's own
/// token has the lock.
async fn repeated_claim_leaves_the_lock(bug: Option<Mutant>) -> bool {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    let locks = connect(&network, "p");
    locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
    network.set_conditions(Conditions { delay: MOMENT * 5, cut_after: 1.0, ..Conditions::default() });
    let acquiring = tokio::spawn(locks.lock("k", &0).timeout(MOMENT * 6).acquire());
    while !is_locked(&network, "k:0") {
        sleep(MOMENT).await;
    }
    network.set_conditions(Conditions::default());
    // Another connection would take longer than its time. The task reads the refusal, and leaves.
    drop(acquiring.await.unwrap());
    sleep(SECOND / 2).await;
    is_locked(&network, "k:0")
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_finds_its_own_lock_when_it_is_sent_again_leaves_nothing() {
    assert!(!repeated_claim_leaves_the_lock(None).await);
    assert!(repeated_claim_leaves_the_lock(Some(Mutant::RepeatedClaimIsRefused)).await);
}
