//! Locks on a majority of independent servers: what happens when some of them, or most, are not there.

mod down;
mod grants;
mod restarts;
mod settings;

use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};
use tests::quorum::Servers;

const LONG: Duration = Duration::from_secs(20);
/// Less than a command to a server that is stopped takes, which is half a second, and more than the pause of one who polls.
const QUICK: Duration = Duration::from_millis(400);
/// Whoever waits has asked the servers by now, most likely.
const POLLED: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_millis(900);
/// The longest that the remains of an acquire block others.
const ORPHAN: Duration = Duration::from_secs(3);

async fn manager(servers: &Servers) -> LockManager {
    LockManager::connect(&servers.url()).await.unwrap()
}

/// With a short time until a server that restarted may vote again.
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

/// Of rounds on a machine that may have more to do.
fn median(rounds: &mut [Duration]) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}
