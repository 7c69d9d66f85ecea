//! The cases: one operation on locks each, repeated.

use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tokio::task::JoinSet;

/// A case, and whether its locks are on a server.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) is_on_server: bool,
}

const fn case(name: &'static str, is_on_server: bool) -> Case {
    Case { name, is_on_server }
}

/// All of them. A name ends with where the locks are.
pub(crate) const ALL: &[Case] = &[
    // One task takes a lock and releases it.
    case("pair-memory", false),
    case("pair-redis", true),
    // Four tasks want one lock all the time: it passes from task to task.
    case("hand-over-memory", false),
    case("hand-over-redis", true),
    // A single try of a lock that somebody else holds: here in memory, another manager on the server.
    case("refused-memory", false),
    case("refused-redis", true),
    // 64 tasks, each with a lock of its own: claims and releases travel together.
    case("together-redis", true),
];

const PATIENCE: Duration = Duration::from_mins(1);
const TASKS_OF_HAND_OVER: usize = 4;
const TASKS_TOGETHER: usize = 64;

/// Runs a case in this process, and prints how many allocations an operation takes.
pub(crate) fn run(case: &str, count: &str, url: &str, allocations: impl Fn() -> usize) -> Result<(), String> {
    let count: usize = count.parse().map_err(|_| format!("{count} is no number"))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let locks = manager(case, url).await?;
        // Tables and buffers get their size.
        repeat(&locks, case, url, count / 2).await?;
        let before = allocations();
        repeat(&locks, case, url, count).await?;
        println!("allocations {}", allocations() - before);
        Ok(())
    })
}

async fn manager(case: &str, url: &str) -> Result<LockManager, String> {
    if case.ends_with("-memory") {
        return Ok(LockManager::in_memory());
    }
    LockManager::connect(url).await.map_err(|error| error.to_string())
}

async fn repeat(locks: &LockManager, case: &str, url: &str, count: usize) -> Result<(), String> {
    let outcome = match case.rsplit_once('-').map_or(case, |(name, _)| name) {
        "pair" => pairs(locks.clone(), "k".to_owned(), count, false).await,
        "hand-over" => {
            let keys = (0..TASKS_OF_HAND_OVER).map(|_| "k".to_owned());
            tasks(locks, keys, count / TASKS_OF_HAND_OVER, true).await
        }
        "together" => {
            let keys = (0..TASKS_TOGETHER).map(|number| format!("k{number}"));
            tasks(locks, keys, count / TASKS_TOGETHER, false).await
        }
        "refused" => {
            let holder = if case.ends_with("-memory") { locks.clone() } else { manager(case, url).await? };
            refused(locks, &holder, count).await
        }
        _ => return Err(format!("there is no case {case}")),
    };
    outcome.map_err(|error| error.to_string())
}

/// Holds a lock again and again. A body that `yields` lets the other tasks come, so that they wait.
async fn pairs(locks: LockManager, key: String, count: usize, yields: bool) -> Result<(), LockError> {
    for _ in 0..count {
        let body = async {
            if yields {
                tokio::task::yield_now().await;
            }
        };
        locks.lock("yardstick", &key).timeout(PATIENCE).run(body).await?;
    }
    Ok(())
}

async fn tasks(
    locks: &LockManager,
    keys: impl Iterator<Item = String>,
    count: usize,
    yields: bool,
) -> Result<(), LockError> {
    let mut tasks = JoinSet::new();
    for key in keys {
        tasks.spawn(pairs(locks.clone(), key, count, yields));
    }
    tasks.join_all().await.into_iter().collect()
}

async fn refused(locks: &LockManager, holder: &LockManager, count: usize) -> Result<(), LockError> {
    let held = holder.lock("yardstick", "held").acquire().await?;
    for _ in 0..count {
        if locks.lock("yardstick", "held").try_acquire().await?.is_some() {
            return Err(LockError::NotInstalled);
        }
    }
    held.release().await
}
