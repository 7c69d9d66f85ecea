//! Concurrent single tries of one process, on several threads: each returns at once with the right result (promise 7).

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

/// How long the winner keeps the lock. A try that waits that long returns too late.
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

async fn concurrent_tries_return_at_once(world: World) {
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
async fn concurrent_tries_return_at_once_in_memory() {
    concurrent_tries_return_at_once(World::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_tries_return_at_once_on_a_server() {
    concurrent_tries_return_at_once(World::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_tries_return_at_once_on_a_cluster() {
    concurrent_tries_return_at_once(World::cluster(Kind::Redis)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_tries_return_at_once_on_a_quorum() {
    concurrent_tries_return_at_once(World::quorum_of_three(Kind::Redis)).await;
}
