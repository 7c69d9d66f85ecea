//! Single tries of one process at the same moment, on several threads: each is told at once what is the case (promise 7).

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::patience::NOISE;
use tests::server::Kind;
use tests::stores::World;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::LONG;

/// For so long the one that gets the lock keeps it. A try that sleeps through that is told too late.
const HELD: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 40;
const TRIES: usize = 5;

/// How long a try took, and whether it got the lock.
async fn try_once(locks: LockManager, round: u32, together: Arc<Barrier>) -> (Duration, bool) {
    together.wait().await;
    let begin = Instant::now();
    let guard = locks.lock("p", &round).try_acquire().await.unwrap();
    let (took, is_had) = (begin.elapsed(), guard.is_some());
    if let Some(guard) = guard {
        sleep(HELD + NOISE).await;
        guard.release().await.unwrap();
    }
    (took, is_had)
}

async fn tries_at_once_are_told_at_once(world: World) {
    let locks = world.manager_with(LockManager::builder().command_timeout(LONG)).await;
    for round in 0..ROUNDS {
        let together = Arc::new(Barrier::new(TRIES));
        let tries: JoinSet<_> = (0..TRIES).map(|_| try_once(locks.clone(), round, Arc::clone(&together))).collect();
        let told = tries.join_all().await;
        assert!(told.iter().all(|(took, _)| *took < NOISE), "round {round}: {told:?}");
        assert_eq!(told.iter().filter(|(_, is_had)| *is_had).count(), 1, "round {round}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_at_once_are_told_at_once_in_memory() {
    tries_at_once_are_told_at_once(World::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_at_once_are_told_at_once_by_a_server() {
    tries_at_once_are_told_at_once(World::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_at_once_are_told_at_once_by_a_cluster() {
    tries_at_once_are_told_at_once(World::cluster(Kind::Redis)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_at_once_are_told_at_once_by_a_quorum() {
    tries_at_once_are_told_at_once(World::quorum_of_three(Kind::Redis)).await;
}
