//! The cases, each a repeated operation on locks.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest, cache_lock};
use tokio::task::JoinSet;

/// Growth by more than this part is worse.
pub(crate) const ALLOWED: f64 = 0.03;

/// A case, and whether its locks are on a server.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) is_on_server: bool,
    /// By which part its instructions may grow.
    pub(crate) allowed: f64,
}

const fn case(name: &'static str, is_on_server: bool) -> Case {
    Case { name, is_on_server, allowed: ALLOWED }
}

/// The number of commands in one batch depends on the time: under callgrind the tasks of a batch take longer to join it than a batch may
/// wait, and then some of them send it early. On a busy machine that was up to a quarter more. Its allocations are steady.
const fn batched(name: &'static str) -> Case {
    Case { allowed: 0.25, ..case(name, true) }
}

/// All cases. A name ends with where the locks are.
pub(crate) const ALL: &[Case] = &[
    // One task takes a lock and releases it.
    case("pair-memory", false),
    case("pair-redis", true),
    // The same with a fn that has the attribute, and with the proxy of an annotated trait.
    case("attribute-memory", false),
    case("proxy-memory", false),
    // One task takes two locks at once and releases both.
    case("two-keys-redis", true),
    // Four tasks constantly want one lock: it passes from task to task.
    case("hand-over-memory", false),
    case("hand-over-redis", true),
    // Six processes constantly want one lock: it passes from process to process, through the queue.
    case("hand-off-redis", true),
    // A single try of a held lock: in memory this process holds it, on the server another manager.
    case("refused-memory", false),
    case("refused-redis", true),
    // 64 tasks, each with its own lock: claims and releases travel together.
    batched("together-redis"),
    // 64 tasks constantly read under one lock: readers join the hold of others.
    case("readers-memory", false),
    // Four tasks constantly want two permits of one lock: permits pass from task to task.
    case("permits-memory", false),
];

const PATIENCE: Duration = Duration::from_mins(1);
const TASKS_OF_HAND_OVER: usize = 4;
/// With fewer processes one may release before another waits again, and then its release is another operation.
const PROCESSES_OF_HAND_OFF: usize = 6;
const TASKS_TOGETHER: usize = 64;
const PERMITS: u32 = 2;

/// Runs a case in this process, and prints how many allocations an operation takes.
pub(crate) fn run(case: &str, count: &str, url: &str, allocations: impl Fn() -> usize) -> Result<(), String> {
    let count: usize = count.parse().map_err(|_| format!("{count} is no number"))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let managers = managers(case, url).await?;
        // Tables and buffers get their size.
        repeat(&managers, case, count / 2).await?;
        let before = allocations();
        repeat(&managers, case, count).await?;
        println!("allocations {}", allocations() - before);
        Ok(())
    })
}

/// To the server each manager is a process.
async fn managers(case: &str, url: &str) -> Result<Vec<LockManager>, String> {
    if case.ends_with("-memory") {
        return Ok(vec![LockManager::in_memory()]);
    }
    let number = match case {
        "refused-redis" => 2,
        "hand-off-redis" => PROCESSES_OF_HAND_OFF,
        _ => 1,
    };
    let mut managers = Vec::new();
    for _ in 0..number {
        managers.push(LockManager::connect(url).await.map_err(|error| error.to_string())?);
    }
    Ok(managers)
}

async fn repeat(managers: &[LockManager], case: &str, count: usize) -> Result<(), String> {
    let Some(locks) = managers.first() else { return Err("no manager".to_owned()) };
    let outcome = match case.rsplit_once('-').map_or(case, |(name, _)| name) {
        "pair" => pairs(locks.clone(), "k".to_owned(), count, Use::default()).await,
        "attribute" => work(&Annotated(locks.clone()), count).await,
        "proxy" => work(&LockedWork::with_manager(Plain, locks.clone()), count).await,
        "two-keys" => two_keys(locks, count).await,
        "hand-over" => tasks(locks, TASKS_OF_HAND_OVER, count, Use { yields: true, ..Use::default() }).await,
        "hand-off" => all_of(managers.iter().map(|locks| one_of(locks, managers.len(), count, Use::default()))).await,
        "readers" => tasks(locks, TASKS_TOGETHER, count, Use { yields: true, mode: LockRequest::read }).await,
        "permits" => {
            let mode = |request: LockRequest| request.permits(PERMITS);
            tasks(locks, TASKS_OF_HAND_OVER, count, Use { yields: true, mode }).await
        }
        "together" => apart(locks, count).await,
        "refused" => refused(locks, managers.last().unwrap_or(locks), count).await,
        _ => return Err(format!("there is no case {case}")),
    };
    outcome.map_err(|error| error.to_string())
}

/// How a case uses its locks.
#[derive(Clone, Copy)]
struct Use {
    /// The body yields to the other tasks, so that they wait.
    yields: bool,
    mode: fn(LockRequest) -> LockRequest,
}

impl Default for Use {
    fn default() -> Self {
        Self { yields: false, mode: |request| request }
    }
}

/// Holds a lock again and again.
async fn pairs(locks: LockManager, key: String, count: usize, how: Use) -> Result<(), LockError> {
    for _ in 0..count {
        let body = async {
            if how.yields {
                tokio::task::yield_now().await;
            }
        };
        (how.mode)(locks.lock("yardstick", &key).timeout(PATIENCE)).run(body).await?;
    }
    Ok(())
}

#[cache_lock(proxy = LockedWork)]
trait Work {
    #[cache_lock(prefix = "yardstick", key = key)]
    async fn work(&self, key: &str, numbers: [u64; 8]) -> Result<u64, LockError>;
}

struct Plain;

impl Work for Plain {
    async fn work(&self, _: &str, numbers: [u64; 8]) -> Result<u64, LockError> {
        Ok(numbers.iter().sum())
    }
}

struct Annotated(LockManager);

impl Work for Annotated {
    #[cache_lock(prefix = "yardstick", key = key, manager = self.0)]
    async fn work(&self, key: &str, numbers: [u64; 8]) -> Result<u64, LockError> {
        Ok(numbers.iter().sum())
    }
}

async fn work(worker: &impl Work, count: usize) -> Result<(), LockError> {
    for number in 0..count {
        std::hint::black_box(worker.work("k", std::hint::black_box([number as u64; 8])).await?);
    }
    Ok(())
}

async fn two_keys(locks: &LockManager, count: usize) -> Result<(), LockError> {
    for _ in 0..count {
        locks.lock_all("yardstick", ["a", "b"]).timeout(PATIENCE).run(async {}).await?;
    }
    Ok(())
}

/// This many tasks use one lock.
async fn tasks(locks: &LockManager, number: usize, count: usize, how: Use) -> Result<(), LockError> {
    all_of((0..number).map(|_| one_of(locks, number, count, how))).await
}

/// Each task uses its own lock.
async fn apart(locks: &LockManager, count: usize) -> Result<(), LockError> {
    let task = |task| pairs(locks.clone(), format!("k{task}"), count / TASKS_TOGETHER, Use::default());
    all_of((0..TASKS_TOGETHER).map(task)).await
}

/// One of this many tasks that use one lock.
fn one_of(
    locks: &LockManager,
    number: usize,
    count: usize,
    how: Use,
) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
    pairs(locks.clone(), "k".to_owned(), count / number, how)
}

/// Runs tasks concurrently.
async fn all_of<T: Future<Output = Result<(), LockError>> + Send + 'static>(
    tasks: impl Iterator<Item = T>,
) -> Result<(), LockError> {
    tasks.collect::<JoinSet<_>>().join_all().await.into_iter().collect()
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
