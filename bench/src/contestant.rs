//! [`Contestant`], what every lock can do, and [`Who`], their list.

use serde::{Deserialize, Serialize};

mod bare;
mod blog;
mod distributed_lock;
mod modes;
mod mutex;
mod observed;
mod ours;
mod raw;
mod redis_lock;
pub(crate) mod redis_py;
mod replay;
mod rslock;
mod tokio_sync;

pub(crate) use bare::Bare;
pub(crate) use blog::Blog;
pub(crate) use distributed_lock::DistributedLock;
pub(crate) use modes::{Permits, Readers, TwoKeys};
pub(crate) use mutex::Mutex;
pub(crate) use observed::{Informed, Metered, Traced};
pub(crate) use ours::{InMemory, Lingering, Ours};
pub(crate) use raw::{Raw, connect as connect_raw};
pub(crate) use redis_lock::RedisLock;
pub(crate) use replay::{Redisson, RedissonReaders, Rueidislock};
pub(crate) use rslock::Rslock;
pub(crate) use tokio_sync::{RwLock, Semaphore};

/// The lease of every contestant whose lease can be set.
const LEASE_MS: u64 = 30_000;
/// How long everybody may wait: longer than the slowest contestant needs.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_mins(10);

/// How many hold a lock that is locked with permits.
pub(crate) const PERMITS: u32 = 4;

/// One lock library, connected.
pub(crate) trait Contestant: Clone + Send + Sync + 'static {
    /// Whether its name is [`Who::Bare`]: it locks nothing, so workloads run its bodies one after another.
    const SERIAL: bool = false;

    fn connect(url: &str) -> impl Future<Output = Result<Self, String>> + Send;

    /// Locks `key`, runs `body`, gives the lock back.
    fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send;

    /// The same for a writer, where [`with`](Self::with) is for a reader.
    fn with_as_writer<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send {
        self.with(key, body)
    }
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Who {
    Ours,
    InMemory,
    Informed,
    Traced,
    Metered,
    Lingering,
    Readers,
    Permits,
    TwoKeys,
    Generator,
    ThreeMasters,
    SixMasters,
    AllUp,
    AllUpAgain,
    OneHangs,
    Raw,
    Bare,
    Mutex,
    RwLock,
    Semaphore,
    Rslock,
    RslockTuned,
    RedisLock,
    RedisLockTuned,
    DistributedLock,
    DistributedLockTuned,
    Blog,
    RedisPy,
    RedisPyTuned,
    Redisson,
    RedissonReaders,
    Rueidislock,
}

impl Who {
    pub(crate) const ALL: [Self; 32] = [
        Self::Ours,
        Self::InMemory,
        Self::Informed,
        Self::Traced,
        Self::Metered,
        Self::Lingering,
        Self::Readers,
        Self::Permits,
        Self::TwoKeys,
        Self::Generator,
        Self::ThreeMasters,
        Self::SixMasters,
        Self::AllUp,
        Self::AllUpAgain,
        Self::OneHangs,
        Self::Raw,
        Self::Bare,
        Self::Mutex,
        Self::RwLock,
        Self::Semaphore,
        Self::Rslock,
        Self::RslockTuned,
        Self::RedisLock,
        Self::RedisLockTuned,
        Self::DistributedLock,
        Self::DistributedLockTuned,
        Self::Blog,
        Self::RedisPy,
        Self::RedisPyTuned,
        Self::Redisson,
        Self::RedissonReaders,
        Self::Rueidislock,
    ];

    /// How it is called on the command line of a child process, and in files.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::InMemory => "in-memory",
            Self::Informed => "informed",
            Self::Traced => "traced",
            Self::Metered => "metered",
            Self::Lingering => "lingering",
            Self::Readers => "readers",
            Self::Permits => "permits",
            Self::TwoKeys => "two-keys",
            Self::Generator => "generator",
            Self::ThreeMasters => "three-masters",
            Self::SixMasters => "six-masters",
            Self::AllUp => "all-up",
            Self::AllUpAgain => "all-up-again",
            Self::OneHangs => "one-hangs",
            Self::Raw => "raw",
            Self::Bare => "bare",
            Self::Mutex => "mutex",
            Self::RwLock => "rw-lock",
            Self::Semaphore => "semaphore",
            Self::Rslock => "rslock",
            Self::RslockTuned => "rslock-tuned",
            Self::RedisLock => "redis-lock",
            Self::RedisLockTuned => "redis-lock-tuned",
            Self::DistributedLock => "distributed-lock",
            Self::DistributedLockTuned => "distributed-lock-tuned",
            Self::Blog => "blog",
            Self::RedisPy => "redis-py",
            Self::RedisPyTuned => "redis-py-tuned",
            Self::Redisson => "redisson",
            Self::RedissonReaders => "redisson-readers",
            Self::Rueidislock => "rueidislock",
        }
    }

    /// How it is called in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours => "this project",
            Self::InMemory => "this project, memory://",
            Self::Informed => "a subscriber for INFO",
            Self::Traced => "a subscriber for the spans",
            Self::Metered => "metrics and an exporter",
            Self::Lingering => "this project, linger 2 s",
            Self::Readers => "this project, readers",
            Self::Permits => "this project, 4 permits",
            Self::TwoKeys => "this project, two keys",
            Self::Generator => "the server alone",
            Self::ThreeMasters => "this project, 3 masters",
            Self::SixMasters => "this project, 6 masters",
            Self::AllUp => "all masters up",
            Self::AllUpAgain => "the same once more: the noise",
            Self::OneHangs => "the third hangs, its locks wanted",
            Self::Raw => "raw SET NX PX + EVALSHA",
            Self::Bare => "no lock, one after another",
            Self::Mutex => "tokio::sync::Mutex",
            Self::RwLock => "tokio::sync::RwLock",
            Self::Semaphore => "tokio::sync::Semaphore",
            Self::Rslock => "rslock 0.10",
            Self::RslockTuned => "rslock, retry 5 ms",
            Self::RedisLock => "redis-lock 0.5.1",
            Self::RedisLockTuned => "redis-lock, retry 5 ms",
            Self::DistributedLock => "distributed-lock-redis 0.2",
            Self::DistributedLockTuned => "distributed-lock-redis, loop 5 ms",
            Self::Blog => "flash-sale article, poll 3 ms",
            Self::RedisPy => "redis-py",
            Self::RedisPyTuned => "redis-py, pool 3000",
            Self::Redisson => "Redisson, replayed",
            Self::RedissonReaders => "Redisson's read lock, replayed",
            Self::Rueidislock => "rueidislock, replayed",
        }
    }

    pub(crate) fn of_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|who| who.id() == id)
    }

    /// Whether it is somebody else's lock, as opposed to ours and what bounds it.
    pub(crate) fn is_peer(self) -> bool {
        self >= Self::Rslock
    }

    /// Of how many masters the cluster is that it locks on; `None`: on one server.
    pub(crate) fn masters(self) -> Option<usize> {
        match self {
            Self::ThreeMasters | Self::AllUp | Self::AllUpAgain | Self::OneHangs => Some(3),
            Self::SixMasters => Some(6),
            _ => None,
        }
    }

    /// The crates that are locks over Redis, however they are set.
    pub(crate) const CRATES: [Self; 6] = [
        Self::Rslock,
        Self::RslockTuned,
        Self::RedisLock,
        Self::RedisLockTuned,
        Self::DistributedLock,
        Self::DistributedLockTuned,
    ];

    pub(crate) fn is_python(self) -> bool {
        matches!(self, Self::RedisPy | Self::RedisPyTuned)
    }
}

/// `with_contestant!(who, C => expression over the type C)`.
macro_rules! with_contestant {
    ($who:expr, $contestant:ident => $body:expr) => {{
        use $crate::contestant as c;
        use $crate::contestant::Who;
        macro_rules! with {
            ($type:ty) => {{
                type $contestant = $type;
                $body
            }};
        }
        match $who {
            Who::Ours | Who::ThreeMasters | Who::SixMasters | Who::AllUp | Who::AllUpAgain | Who::OneHangs => {
                with!(c::Ours)
            }
            Who::InMemory => with!(c::InMemory),
            Who::Informed => with!(c::Informed),
            Who::Traced => with!(c::Traced),
            Who::Metered => with!(c::Metered),
            Who::Lingering => with!(c::Lingering),
            Who::Readers => with!(c::Readers),
            Who::Permits => with!(c::Permits),
            Who::TwoKeys => with!(c::TwoKeys),
            // It needs no lock: see the workload.
            Who::Raw | Who::Generator => with!(c::Raw),
            Who::Bare => with!(c::Bare),
            Who::Mutex => with!(c::Mutex),
            Who::RwLock => with!(c::RwLock),
            Who::Semaphore => with!(c::Semaphore),
            Who::Rslock => with!(c::Rslock<false>),
            Who::RslockTuned => with!(c::Rslock<true>),
            Who::RedisLock => with!(c::RedisLock<false>),
            Who::RedisLockTuned => with!(c::RedisLock<true>),
            Who::DistributedLock => with!(c::DistributedLock<false>),
            Who::DistributedLockTuned => with!(c::DistributedLock<true>),
            Who::Blog => with!(c::Blog),
            Who::Redisson => with!(c::Redisson),
            Who::RedissonReaders => with!(c::RedissonReaders),
            Who::Rueidislock => with!(c::Rueidislock),
            Who::RedisPy | Who::RedisPyTuned => Err("redis-py does not run in this process".to_owned()),
        }
    }};
}
pub(crate) use with_contestant;
