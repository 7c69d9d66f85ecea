//! [`Case`], the list of what is measured, and how a child process finds its workload.

use crate::child::Run;
use crate::contestant::{Contestant, Who};
use crate::outcome::Outcome;

mod w1;
mod w2;
pub(crate) mod w3;
mod w3b;
pub(crate) mod w5;
pub(crate) mod w6;
mod w7;
mod w8;
mod w9;

/// Where the tasks of a case run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// A current-thread runtime on the same core as the server: no noise of the scheduler's.
    Pinned,
    /// A current-thread runtime.
    Current,
    /// Two worker threads.
    Multi,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Pair,
    Pairs { keys: u32 },
    Sale,
    SaleInMemory,
    Fairness,
    HandOff,
    Leases,
    Crowd { keys: u32, waiters: u32 },
    Attribute,
}

/// One table of the report.
#[derive(Debug)]
pub(crate) struct Case {
    /// What the command line calls it; the part before the first `-` names its group.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) workload: Workload,
    pub(crate) flavour: Flavour,
    pub(crate) processes: u32,
    /// Who the ratio refers to.
    pub(crate) baseline: Who,
    pub(crate) contestants: &'static [Who],
    /// The columns; the first is the one that is compared.
    pub(crate) columns: &'static [&'static str],
}

use Flavour::{Current, Multi, Pinned};
use Who::{
    Bare, Blog, DistributedLock, DistributedLockTuned, InMemory, Mutex, Ours, Raw, RedisLock, RedisLockTuned, RedisPy,
    RedisPyTuned, Rslock, RslockTuned,
};

const PAIR: &[&str] =
    &["p50 µs", "µs per pair", "p99 µs", "commands per lock", "client µs per lock", "server µs per lock"];
const PAIRS: &[&str] = &["pairs/s", "commands per lock", "client µs per lock", "server µs per lock"];
const SALE: &[&str] =
    &["wall ms", "lock commands per lock", "client µs per lock", "server µs per lock", "wake-ups per lock"];
const HAND_OVER: &[&str] = &["µs per hand-over", "wall ms", "commands per sale", "client µs per lock"];
const SPREAD: &[&str] = &["wall ms", "hand-offs", "commands per hand-off", "client µs per lock", "server µs per lock"];
const FAIR: &[&str] = &["locks/s", "gap µs", "Jain", "Jain of processes", "longest wait ms", "longest / cycle"];
const HAND_OFF: &[&str] = &[
    "hand-off µs",
    "PING µs",
    "× PING",
    "PING after a pause µs",
    "× PING after a pause",
    "p99 µs",
    "alternating",
    "commands per lock",
];
const LEASES: &[&str] =
    &["% of a core", "commands/s", "wake-ups/s", "bytes per hold", "resident bytes per hold", "server % of a core"];
const CROWD: &[&str] =
    &["µs per waiter", "drain ms", "bytes per waiter", "resident bytes per waiter", "commands per lock"];
const ATTRIBUTE: &[&str] = &["attribute / hand", "µs by attribute", "µs by hand"];

const EVERYBODY: &[Who] = &[
    Raw,
    Ours,
    Rslock,
    RslockTuned,
    RedisLock,
    RedisLockTuned,
    DistributedLock,
    DistributedLockTuned,
    Blog,
    RedisPy,
    RedisPyTuned,
];
const SELLERS: &[Who] = &[
    Bare,
    Ours,
    Raw,
    Rslock,
    RslockTuned,
    RedisLock,
    RedisLockTuned,
    DistributedLock,
    DistributedLockTuned,
    Blog,
    RedisPy,
    RedisPyTuned,
];
const SELLERS_IN_MEMORY: &[Who] = &[
    Mutex,
    Ours,
    InMemory,
    Raw,
    Rslock,
    RslockTuned,
    RedisLock,
    RedisLockTuned,
    DistributedLock,
    DistributedLockTuned,
    Blog,
    RedisPy,
    RedisPyTuned,
];
const FAIR_ONES: &[Who] =
    &[Mutex, Ours, Raw, Rslock, RslockTuned, RedisLock, RedisLockTuned, DistributedLockTuned, Blog, RedisPyTuned];
const FAIR_ONES_OF_TWO: &[Who] =
    &[Raw, Ours, Rslock, RslockTuned, RedisLock, RedisLockTuned, DistributedLockTuned, Blog, RedisPyTuned];

macro_rules! case {
    ($id:literal, $title:literal, $workload:expr, $flavour:expr, $processes:literal, $baseline:expr, $who:expr, $columns:expr) => {
        Case {
            id: $id,
            title: $title,
            workload: $workload,
            flavour: $flavour,
            processes: $processes,
            baseline: $baseline,
            contestants: $who,
            columns: $columns,
        }
    };
}

#[rustfmt::skip]
pub(crate) static CASES: &[Case] = &[
    case!("w1-pinned", "W1 one task, one key; client and server on one core", Workload::Pair, Pinned, 1, Raw, EVERYBODY, PAIR),
    case!("w1-multi", "W1 one task, one key; two worker threads", Workload::Pair, Multi, 1, Raw, EVERYBODY, PAIR),
    case!("w2-64", "W2 64 tasks on 64 keys; two worker threads", Workload::Pairs { keys: 64 }, Multi, 1, Raw, EVERYBODY, PAIRS),
    case!("w2-64-current", "W2 64 tasks on 64 keys; current-thread runtime", Workload::Pairs { keys: 64 }, Current, 1, Raw, &[Raw, Ours], PAIRS),
    case!("w2-1000", "W2 1,000 tasks on 1,000 keys; two worker threads", Workload::Pairs { keys: 1000 }, Multi, 1, Raw, &[Raw, Ours, Rslock, RedisLockTuned, DistributedLock, Blog], PAIRS),
    case!("w2-1000-current", "W2 1,000 tasks on 1,000 keys; current-thread runtime", Workload::Pairs { keys: 1000 }, Current, 1, Raw, &[Raw, Ours], PAIRS),
    case!("w3", "W3 flash sale, 1,000 buyers, 2 items, stock in Redis", Workload::Sale, Multi, 1, Bare, SELLERS, SALE),
    case!("w3-pinned", "W3 flash sale; current-thread runtime, client and server on one core", Workload::Sale, Pinned, 1, Bare, &[Bare, Ours], SALE),
    case!("w3b", "W3b flash sale, stock in memory: the hand-over alone", Workload::SaleInMemory, Multi, 1, Mutex, SELLERS_IN_MEMORY, HAND_OVER),
    case!("w3b-current", "W3b flash sale, stock in memory; current-thread runtime", Workload::SaleInMemory, Current, 1, Mutex, &[Mutex, Ours, InMemory], HAND_OVER),
    case!("w4-2", "W4 flash sale over 2 processes", Workload::Sale, Multi, 2, Bare, SELLERS, SPREAD),
    case!("w4-4", "W4 flash sale over 4 processes", Workload::Sale, Multi, 4, Bare, SELLERS, SPREAD),
    case!("w5", "W5 50 tasks on one key, body of 1 ms", Workload::Fairness, Multi, 1, Mutex, FAIR_ONES, FAIR),
    case!("w5-2", "W5 over two processes of 25 tasks", Workload::Fairness, Multi, 2, Raw, FAIR_ONES_OF_TWO, FAIR),
    case!("w6", "W6 hand-off between two processes", Workload::HandOff, Current, 2, Raw, &[Raw, Ours, Rslock, RslockTuned, RedisLockTuned, DistributedLockTuned, Blog], HAND_OFF),
    case!("w7", "W7 100,000 leases of 30 s held and renewed", Workload::Leases, Multi, 1, Ours, &[Ours], LEASES),
    case!("w8-1", "W8 100,000 tasks wait for one key", Workload::Crowd { keys: 1, waiters: 100_000 }, Multi, 1, Mutex, &[Mutex, Ours, InMemory], CROWD),
    case!("w8-1-quarter", "W8 25,000 tasks wait for one key", Workload::Crowd { keys: 1, waiters: 25_000 }, Multi, 1, Mutex, &[Mutex, Ours, InMemory], CROWD),
    case!("w8-10000", "W8 100,000 tasks wait for 10,000 keys", Workload::Crowd { keys: 10_000, waiters: 100_000 }, Multi, 1, Mutex, &[Mutex, Ours, InMemory], CROWD),
    case!("w8-10000-quarter", "W8 25,000 tasks wait for 10,000 keys", Workload::Crowd { keys: 10_000, waiters: 25_000 }, Multi, 1, Mutex, &[Mutex, Ours, InMemory], CROWD),
    case!("w9", "W9 the attribute and the call it stands for, in memory", Workload::Attribute, Current, 1, InMemory, &[InMemory], ATTRIBUTE),
];

/// The case of this id.
pub(crate) fn case(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id == id)
}

impl Case {
    /// The column that only the counting allocator can fill.
    pub(crate) fn weighed(&self) -> Option<&'static str> {
        match self.workload {
            Workload::Leases => Some("bytes per hold"),
            Workload::Crowd { .. } => Some("bytes per waiter"),
            _ => None,
        }
    }
}

/// Runs the workload of `run` in this process.
pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    match run.case.workload {
        Workload::Pair => w1::run::<C>(run).await,
        Workload::Pairs { keys } => w2::run::<C>(run, keys).await,
        Workload::Sale => w3::run::<C>(run).await,
        Workload::SaleInMemory => w3b::run::<C>(run).await,
        Workload::Fairness => w5::run::<C>(run).await,
        Workload::HandOff => w6::run::<C>(run).await,
        Workload::Leases => w7::run(run).await,
        Workload::Crowd { keys, waiters } => w8::run::<C>(run, keys, waiters).await,
        Workload::Attribute => w9::run(run).await,
    }
}
