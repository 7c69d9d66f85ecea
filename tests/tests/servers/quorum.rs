//! Locks on a majority of independent servers: what happens when some or most of them are down.

mod down;
mod grants;
mod restarts;
mod settings;

use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};
use tests::quorum::Servers;

const LONG: Duration = Duration::from_secs(20);
/// Less than the half second after which a command to a stopped server times out, and more than the pause of a waiter that polls.
const QUICK: Duration = Duration::from_millis(400);
/// After this time a waiter has most likely asked the servers.
const POLLED: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_millis(900);
/// How long the leftovers of an acquire may block others.
const ORPHAN: Duration = Duration::from_secs(3);

async fn manager(servers: &Servers) -> LockManager {
    LockManager::connect(&servers.url()).await.unwrap()
}

/// A manager whose servers soon vote again after a restart.
async fn forgiving(url: &str) -> LockManager {
    let short = Duration::from_secs(2);
    LockManager::builder().url(url).default_expire(short).max_lease(short).connect().await.unwrap()
}

async fn held(manager: &LockManager, key: &str) -> LockGuard {
    manager.lock("p", key).timeout(LONG).acquire().await.unwrap()
}

async fn fenced(manager: &LockManager, key: &str) -> u64 {
    let guard = manager.lock("p", key).timeout(LONG).fenced(true).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap();
    guard.release().await.unwrap();
    token.into()
}

/// The median, because single rounds may be slow on a busy machine.
fn median(rounds: &mut [Duration]) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}
