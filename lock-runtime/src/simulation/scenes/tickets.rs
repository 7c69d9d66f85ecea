//! Tickets whose tasks are polled once, and then not for a long time. The connection breaks before the command arrives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;

use super::world;
use crate::mutants::{Mutant, Seeded};
use crate::simulation::process::connect;
use crate::{LockError, LockManager};

const KEPT: Duration = Duration::from_secs(60);
/// Longer than a late task may keep others out.
const LATE: Duration = Duration::from_secs(1);

async fn is_free(locks: &LockManager) -> bool {
    locks.lock("k", &0).try_acquire().await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_away_by_a_late_task_is_free_soon() {
    for (bug, is_soon) in [(None, true), (Some(Mutant::OnlyReleasesWatched), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
        let guard = locks.lock("k", &0).acquire().await.unwrap();
        network.cut(Some("p"));
        let mut giving = Box::pin(guard.into_ticket(KEPT));
        assert!((&mut giving).now_or_never().is_none());
        sleep(LATE).await;
        assert_eq!(is_free(&others).await, is_soon, "{bug:?}");
        assert!(giving.await.is_err() || !is_soon, "{bug:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_is_given_back_by_a_late_task_is_given_back_soon() {
    for (bug, is_soon) in [(None, true), (Some(Mutant::OnlyReleasesWatched), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
        let ticket = locks.lock("k", &0).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
        network.cut(Some("p"));
        let mut releasing = Box::pin(locks.release_ticket(ticket));
        assert!((&mut releasing).now_or_never().is_none());
        sleep(LATE).await;
        assert_eq!(is_free(&others).await, is_soon, "{bug:?}");
        // It may report that the server did not answer in time.
        drop(releasing.await);
    }
}

/// A worker has adopted it. The keeper repeats the release for a task that reads its reply too late.
#[tokio::test(start_paused = true)]
async fn an_adopted_ticket_is_not_reported_as_given_back_to_a_late_task() {
    for (bug, is_told) in [(None, false), (Some(Mutant::LateIsGivenBack), true)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (locks, worker) = (connect(&network, "p"), connect(&network, "q"));
        let ticket = locks.lock("k", &0).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
        let adopted = worker.adopt(ticket.clone()).await.unwrap();
        let mut releasing = Box::pin(locks.release_ticket(ticket));
        assert!((&mut releasing).now_or_never().is_none());
        sleep(LATE * 2).await;
        assert_eq!(releasing.await.is_ok(), is_told, "{bug:?}");
        assert!(adopted.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_adopter_that_did_not_reach_the_store_does_not_report_the_ticket_as_over() {
    for (bug, is_told) in [(None, true), (Some(Mutant::LateAdoptionIsLost), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let locks = connect(&network, "p");
        let ticket = locks.lock("k", &0).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
        network.cut(Some("p"));
        let mut adopting = Box::pin(locks.adopt(ticket.clone()));
        assert!((&mut adopting).now_or_never().is_none());
        sleep(LATE).await;
        let adopted = adopting.await;
        assert_eq!(matches!(adopted, Err(LockError::Backend { .. })), is_told, "{bug:?}: {adopted:?}");
        assert!(locks.adopt(ticket).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_an_adopter_gave_up_is_free_soon() {
    for (bug, is_soon) in [(None, true), (Some(Mutant::AdoptedLeft), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
        let ticket = locks.lock("k", &0).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
        let mut adopting = Box::pin(locks.adopt(ticket));
        assert!((&mut adopting).now_or_never().is_none());
        sleep(LATE / 100).await;
        drop(adopting);
        sleep(LATE / 100).await;
        assert_eq!(is_free(&others).await, is_soon, "{bug:?}");
    }
}

/// The store has given the permit to the adopter, which has not read that yet. Another task of its process takes another permit.
#[tokio::test(start_paused = true)]
async fn a_permit_that_is_being_adopted_is_not_taken_for_a_free_one() {
    for late in [LATE / 300, LATE / 50] {
        let (_time, network) = world();
        let (giver, worker) = (connect(&network, "p"), connect(&network, "q"));
        let permit = |locks: &LockManager| locks.lock("k", &0).permits(2);
        permit(&worker).acquire().await.unwrap().release().await.unwrap();
        let ticket = permit(&giver).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
        let mut adopting = Box::pin(worker.adopt(ticket));
        assert!((&mut adopting).now_or_never().is_none());
        let other = tokio::spawn(permit(&worker).run(sleep(LATE / 2)));
        sleep(late).await;
        let adopted = adopting.await.is_ok_and(|guard| guard.is_valid());
        assert!(adopted && other.await.unwrap().is_ok(), "{late:?}");
    }
}

/// There is only one permit: the process asks for it as if none of its tasks used it.
#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_permit_gets_it_when_an_adopter_of_its_process_fails() {
    let (_time, network) = world();
    let (giver, worker) = (connect(&network, "p"), connect(&network, "q"));
    let permit = |locks: &LockManager| locks.lock("k", &0).permits(1);
    let ticket = permit(&giver).acquire().await.unwrap().into_ticket(LATE).await.unwrap();
    let mut adopting = Box::pin(worker.adopt(ticket));
    assert!((&mut adopting).now_or_never().is_none());
    let waiting = tokio::spawn(permit(&worker).timeout(LATE * 9).acquire());
    tokio::task::yield_now().await;
    drop(adopting);
    assert!(waiting.await.unwrap().is_ok());
}
