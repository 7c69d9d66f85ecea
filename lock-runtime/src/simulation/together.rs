//! Claims that are sent in one write: what happens to each when another is refused, or when its task is gone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use server_model::ModelServer;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::network::Network;
use super::process::connect;
use super::time::Simulated;
use crate::{LockError, LockGuard, LockManager};

const ROUND_TRIP: Duration = Duration::from_millis(20);
/// The first claim goes out at once; then the connection is busy.
const ALONE: u32 = 1;
const COUNT: u32 = 8;

/// A connected manager at a distance that keeps its commands on their way for a while.
async fn world() -> (Simulated, Arc<Network>, LockManager) {
    let (time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let locks = connect(&network, "p");
    locks.lock("k", &99).acquire().await.unwrap().release().await.unwrap();
    network.move_away(ROUND_TRIP);
    (time, network, locks)
}

async fn acquire_all(locks: &LockManager) -> Vec<Result<LockGuard, LockError>> {
    join_all((0..COUNT).map(|key| locks.lock("k", &key).timeout(Duration::from_secs(1)).acquire())).await
}

fn locks_of(network: &Network) -> Vec<String> {
    let keys = network.server(ModelServer::snapshot).into_iter();
    keys.map(|(key, _)| key).filter(|key| key.starts_with("k:")).collect()
}

/// How many tasks get their lock when one key holds a value that is not a lock.
async fn granted_beside_a_refused_one() -> usize {
    let (_time, network, locks) = world().await;
    network.execute(&["RPUSH", "k:5", "theirs"]);
    let acquired = acquire_all(&locks).await;
    for (key, outcome) in acquired.iter().enumerate().filter(|(_, outcome)| outcome.is_err()) {
        assert!(key == 5, "{key}: {outcome:?}");
    }
    acquired.iter().filter(|outcome| outcome.is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn one_refused_claim_spoils_no_other() {
    assert_eq!(granted_beside_a_refused_one().await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_task_is_gone_before_it_is_sent_leaves_nothing() {
    let (_time, network, locks) = world().await;
    let mut asking: Vec<_> = (0..COUNT).map(|key| Box::pin(locks.lock("k", &key).acquire())).collect();
    for acquire in &mut asking {
        assert!(acquire.now_or_never().is_none());
    }
    // By now the first is sent, and the others are not.
    asking.truncate(ALONE as usize);
    let guards = join_all(asking).await;
    sleep(ROUND_TRIP * 3).await;
    assert_eq!((guards.len(), locks_of(&network).len()), (ALONE as usize, ALONE as usize));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_task_is_gone_after_it_was_sent_is_withdrawn() {
    let (_time, network, locks) = world().await;
    let mut asking: Vec<_> = (0..COUNT).map(|key| Box::pin(locks.lock("k", &key).acquire())).collect();
    for acquire in &mut asking {
        assert!(acquire.now_or_never().is_none());
    }
    for _ in 0..4 {
        yield_now().await;
    }
    drop(asking);
    sleep(ROUND_TRIP * 3).await;
    assert!(locks_of(&network).is_empty(), "{:?}", locks_of(&network));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_in_a_batch_leaves_the_turn_to_the_next_task() {
    let (_time, _network, locks) = world().await;
    let mut asking: Vec<_> = (0..COUNT).map(|key| Box::pin(locks.lock("k", &key).acquire())).collect();
    for acquire in &mut asking {
        assert!(acquire.now_or_never().is_none());
    }
    let next = locks.lock("k", &5).acquire();
    drop(asking);
    next.await.unwrap().release().await.unwrap();
}
