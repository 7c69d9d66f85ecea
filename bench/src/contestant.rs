//! [`Contestant`], what every lock can do, and [`Who`], the list of contestants.

use serde::{Deserialize, Serialize};

mod bare;
mod blog;
mod distributed_lock;
pub(crate) mod foreign;
mod modes;
mod mutex;
mod observed;
mod ours;
mod raw;
mod redis_lock;
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
pub(crate) use raw::{Raw, RawBesideTimer, connect as connect_raw};
pub(crate) use redis_lock::RedisLock;
pub(crate) use replay::{Redisson, RedissonReaders, Rueidislock};
pub(crate) use rslock::Rslock;
pub(crate) use tokio_sync::{RwLock, Semaphore};

/// The lease of every contestant whose lease can be set.
const LEASE_MS: u64 = 30_000;
/// How long every contestant may wait: longer than the slowest one needs.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_mins(10);

/// How many tasks hold a lock with permits at once.
pub(crate) const PERMITS: u32 = 4;

/// One lock library, connected.
pub(crate) trait Contestant: Clone + Send + Sync + 'static {
    /// Whether its name is [`Who::Bare`]: it locks nothing, so workloads run its bodies one after another.
    const SERIAL: bool = false;

    fn connect(url: &str) -> impl Future<Output = Result<Self, String>> + Send;

    /// Locks `key`, runs `body`, and releases the lock.
    fn with<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send;

    /// Locks for a writer, while [`with`](Self::with) locks for a reader.
    fn with_as_writer<T: Send + 'static>(
        &self,
        key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send {
        self.with(key, body)
    }
}

/// The list of contestants: the name in the code, the name on a child's command line and in files, and the name in tables. First ours
/// and its bounds, then the locks of others.
macro_rules! contestants {
    ($($who:ident, $id:literal, $title:literal;)*) => {
        /// A contestant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub(crate) enum Who {
            $($who,)*
        }

        impl Who {
            pub(crate) const ALL: &[Self] = &[$(Self::$who,)*];

            /// Its name on a child's command line, and in files.
            pub(crate) fn id(self) -> &'static str {
                match self {
                    $(Self::$who => $id,)*
                }
            }

            /// Its name in tables.
            pub(crate) fn title(self) -> &'static str {
                match self {
                    $(Self::$who => $title,)*
                }
            }
        }
    };
}

contestants! {
    Ours, "ours", "this project";
    InMemory, "in-memory", "this project, memory://";
    Informed, "informed", "a subscriber for INFO";
    Traced, "traced", "a subscriber for the spans";
    Metered, "metered", "metrics and an exporter";
    Lingering, "lingering", "this project, linger 2 s";
    Readers, "readers", "this project, readers";
    Permits, "permits", "this project, 4 permits";
    TwoKeys, "two-keys", "this project, two keys";
    Generator, "generator", "the server alone";
    ThreeMasters, "three-masters", "this project, 3 masters";
    SixMasters, "six-masters", "this project, 6 masters";
    AllUp, "all-up", "all masters up";
    AllUpAgain, "all-up-again", "the same once more: the noise";
    OneHangs, "one-hangs", "the third hangs, its locks wanted";
    InGroups, "in-groups", "this project, 2,000 at a time";
    AtOnce, "at-once", "this project, all at one moment";
    Raw, "raw", "raw SET NX PX + EVALSHA";
    RawBesideTimer, "raw-beside-timer", "raw, in a runtime with a timer";
    Bare, "bare", "no lock, one after another";
    Mutex, "mutex", "tokio::sync::Mutex";
    RwLock, "rw-lock", "tokio::sync::RwLock";
    Semaphore, "semaphore", "tokio::sync::Semaphore";
    Rslock, "rslock", "rslock 0.10";
    RslockTuned, "rslock-tuned", "rslock, retry 5 ms";
    RedisLock, "redis-lock", "redis-lock 0.5.1";
    RedisLockTuned, "redis-lock-tuned", "redis-lock, retry 5 ms";
    DistributedLock, "distributed-lock", "distributed-lock-redis 0.2";
    DistributedLockTuned, "distributed-lock-tuned", "distributed-lock-redis, loop 5 ms";
    Blog, "blog", "flash-sale article, poll 3 ms";
    RedisPy, "redis-py", "redis-py";
    RedisPyTuned, "redis-py-tuned", "redis-py, pool 3000";
    Pottery, "pottery", "pottery 3, pool 3000";
    NodeRedlock, "node-redlock", "node-redlock 5";
    NodeRedlockTuned, "node-redlock-tuned", "node-redlock, retry 5 ms";
    Redisson, "redisson", "Redisson, replayed";
    RedissonReaders, "redisson-readers", "Redisson's read lock, replayed";
    Rueidislock, "rueidislock", "rueidislock, replayed";
}

impl Who {
    pub(crate) fn of_id(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|who| who.id() == id)
    }

    /// Whether it is another project's lock, and not ours or one of its bounds.
    pub(crate) fn is_peer(self) -> bool {
        self >= Self::Rslock
    }

    /// The number of masters of its cluster; `None`: it locks on one server.
    pub(crate) fn masters(self) -> Option<usize> {
        match self {
            Self::ThreeMasters | Self::AllUp | Self::AllUpAgain | Self::OneHangs => Some(3),
            Self::SixMasters => Some(6),
            _ => None,
        }
    }

    /// The crates with locks over Redis, in all settings.
    pub(crate) const CRATES: [Self; 6] = [
        Self::Rslock,
        Self::RslockTuned,
        Self::RedisLock,
        Self::RedisLockTuned,
        Self::DistributedLock,
        Self::DistributedLockTuned,
    ];
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
            Who::Ours
            | Who::ThreeMasters
            | Who::SixMasters
            | Who::AllUp
            | Who::AllUpAgain
            | Who::OneHangs
            | Who::InGroups
            | Who::AtOnce => with!(c::Ours),
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
            Who::RawBesideTimer => with!(c::RawBesideTimer),
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
            Who::RedisPy | Who::RedisPyTuned | Who::Pottery | Who::NodeRedlock | Who::NodeRedlockTuned => {
                Err("it does not run in this process".to_owned())
            }
        }
    }};
}
pub(crate) use with_contestant;
