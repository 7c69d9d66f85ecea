//! [`Case`], the list of measurements, and how a child process finds its workload.

use crate::child::Run;
use crate::column::{self, Column};
use crate::contestant::{Contestant, Who};
use crate::outcome::Outcome;

mod burst;
mod hanging_master;
mod limit;
pub(crate) mod scale_hand_offs;
mod scale_locks;
mod w1;
mod w10;
mod w11;
pub(crate) mod w12;
mod w13;
pub(crate) mod w14;
pub(crate) mod w16;
mod w2;
pub(crate) mod w3;
mod w3b;
pub(crate) mod w5;
pub(crate) mod w6;
mod w7;
pub(crate) mod w8;
mod w9;

/// Where the tasks of a case run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// A current-thread runtime on the same core as the server: no noise from the scheduler.
    Pinned,
    /// A current-thread runtime.
    Current,
    /// Two worker threads.
    Multi,
}

/// The kind of work.
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
    Sticky,
    Turns,
    Processes,
    Shared,
    BusyPermits,
    ReadersAndWriters,
    ScaleLocks,
    ScaleHandOffs,
    HangingMaster,
    Burst { tasks: u32 },
}

/// One table of the report.
#[derive(Debug)]
pub(crate) struct Case {
    /// Its name on the command line; the part before the first `-` names its group.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) workload: Workload,
    pub(crate) flavour: Flavour,
    pub(crate) processes: u32,
    /// The contestant that the ratios refer to.
    pub(crate) baseline: Who,
    pub(crate) contestants: &'static [Who],
    /// The columns; the first is the one that is compared.
    pub(crate) columns: &'static [Column],
}

use Flavour::{Current, Multi, Pinned};
use Who::{
    AllUp, AllUpAgain, AtOnce, Bare, Blog, DistributedLock, DistributedLockTuned, Generator, InGroups, InMemory,
    Informed, Lingering, Metered, Mutex, NodeRedlock, NodeRedlockTuned, OneHangs, Ours, Permits, Pottery, Raw,
    RawBesideTimer, Readers, RedisLock, RedisLockTuned, RedisPy, RedisPyTuned, Redisson, RedissonReaders, Rslock,
    RslockTuned, Rueidislock, RwLock, Semaphore, SixMasters, ThreeMasters, Traced, TwoKeys,
};

const EVERYBODY: &[Who] = &[
    Raw,
    RawBesideTimer,
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
    Pottery,
    NodeRedlock,
    NodeRedlockTuned,
    Redisson,
    Rueidislock,
];
/// Without pottery, which does not finish a sale.
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
    NodeRedlock,
    NodeRedlockTuned,
    Redisson,
    Rueidislock,
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
    NodeRedlock,
    NodeRedlockTuned,
    Redisson,
    Rueidislock,
];
const FAIR_ONES: &[Who] = &[
    Mutex,
    Ours,
    Raw,
    Rslock,
    RslockTuned,
    RedisLock,
    RedisLockTuned,
    DistributedLockTuned,
    Blog,
    RedisPyTuned,
    Pottery,
    NodeRedlockTuned,
    Redisson,
    Rueidislock,
];
const FAIR_ONES_OF_TWO: &[Who] = &[
    Raw,
    Ours,
    Rslock,
    RslockTuned,
    RedisLock,
    RedisLockTuned,
    DistributedLockTuned,
    Blog,
    RedisPyTuned,
    Pottery,
    NodeRedlockTuned,
    Redisson,
    Rueidislock,
];

/// With the feature, all of them are built with metrics: then "this project" has metrics and no exporter.
const OBSERVED: &[Who] =
    if cfg!(feature = "metrics") { &[Ours, Informed, Traced, Metered] } else { &[Ours, Informed, Traced] };

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
    case!("w1-pinned", "W1 one task, one key; client and server on one core", Workload::Pair, Pinned, 1, Raw, EVERYBODY, column::PAIR),
    case!("w1-multi", "W1 one task, one key; two worker threads", Workload::Pair, Multi, 1, Raw, EVERYBODY, column::PAIR),
    case!("w1-current", "W1 one task, one key; current-thread runtime", Workload::Pair, Current, 1, Raw, &[Raw, RawBesideTimer, Ours], column::PAIR),
    case!("w1-profile", "W1 where the time goes; client and server on one core", Workload::Pair, Pinned, 1, Raw, &[Raw, Ours], column::PROFILE),
    case!("w2-64", "W2 64 tasks on 64 keys; two worker threads", Workload::Pairs { keys: 64 }, Multi, 1, Raw, EVERYBODY, column::PAIRS),
    case!("w2-64-current", "W2 64 tasks on 64 keys; current-thread runtime", Workload::Pairs { keys: 64 }, Current, 1, Raw, &[Raw, Ours], column::PAIRS),
    case!("w2-1000", "W2 1,000 tasks on 1,000 keys; two worker threads", Workload::Pairs { keys: 1000 }, Multi, 1, Raw, &[Raw, Ours, Rslock, RedisLockTuned, DistributedLock, Blog], column::PAIRS),
    case!("w2-1000-current", "W2 1,000 tasks on 1,000 keys; current-thread runtime", Workload::Pairs { keys: 1000 }, Current, 1, Raw, &[Raw, Ours], column::PAIRS),
    case!("w3", "W3 flash sale, 1,000 buyers, 2 items, stock in Redis", Workload::Sale, Multi, 1, Bare, SELLERS, column::SALE),
    case!("w3-pinned", "W3 flash sale; current-thread runtime, client and server on one core", Workload::Sale, Pinned, 1, Bare, &[Bare, Ours], column::SALE),
    case!("w3b", "W3b flash sale, stock in memory: the hand-over alone", Workload::SaleInMemory, Multi, 1, Mutex, SELLERS_IN_MEMORY, column::HAND_OVER),
    case!("w3b-current", "W3b flash sale, stock in memory; current-thread runtime", Workload::SaleInMemory, Current, 1, Mutex, &[Mutex, Ours, InMemory], column::HAND_OVER),
    case!("w4-2", "W4 flash sale over 2 processes", Workload::Sale, Multi, 2, Bare, SELLERS, column::SPREAD),
    case!("w4-4", "W4 flash sale over 4 processes", Workload::Sale, Multi, 4, Bare, SELLERS, column::SPREAD),
    case!("w5", "W5 50 tasks on one key, body of 1 ms", Workload::Fairness, Multi, 1, Mutex, FAIR_ONES, column::FAIR),
    case!("w5-2", "W5 over two processes of 25 tasks", Workload::Fairness, Multi, 2, Raw, FAIR_ONES_OF_TWO, column::FAIR),
    case!("w6", "W6 hand-off between two processes", Workload::HandOff, Current, 2, Raw, &[Raw, Ours, Rslock, RslockTuned, RedisLockTuned, DistributedLockTuned, Blog, Redisson, Rueidislock], column::HAND_OFF),
    case!("w7", "W7 100,000 leases of 30 s held and renewed", Workload::Leases, Multi, 1, Ours, &[Ours], column::LEASES),
    case!("w8-1", "W8 100,000 tasks wait for one key", Workload::Crowd { keys: 1, waiters: 100_000 }, Multi, 1, Mutex, &[Mutex, Ours, InMemory], column::CROWD),
    case!("w8-10000", "W8 100,000 tasks wait for 10,000 keys", Workload::Crowd { keys: 10_000, waiters: 100_000 }, Multi, 1, Mutex, &[Mutex, Ours, InMemory], column::CROWD),
    case!("w9", "W9 the attribute and the call it stands for, in memory", Workload::Attribute, Current, 1, InMemory, &[InMemory], column::ATTRIBUTE),
    case!("w10", "W10 1,000 keys by Zipf's law, 64 tasks with pauses: nobody waits", Workload::Sticky, Multi, 1, Raw, &[Raw, Ours, Lingering], column::STICKY),
    case!("w11", "W11 two processes lock one key in strict turns", Workload::Turns, Current, 1, Ours, &[Ours, Lingering], column::TURNS),
    case!("w12", "W12 many processes want one key", Workload::Processes, Multi, 1, Ours, &[Ours], column::PROCESSES),
    case!("w13", "W13 64 tasks read under one key all the time", Workload::Shared, Multi, 1, RwLock, &[RwLock, Readers, RedissonReaders], column::SHARED),
    case!("w13-current", "W13 on a current-thread runtime", Workload::Shared, Current, 1, RwLock, &[RwLock, Readers], column::SHARED),
    case!("w14", "W14 64 tasks want one of 4 permits all the time", Workload::Shared, Multi, 1, Semaphore, &[Semaphore, Permits], column::SHARED),
    case!("w14-current", "W14 on a current-thread runtime", Workload::Shared, Current, 1, Semaphore, &[Semaphore, Permits], column::SHARED),
    case!("w14-busy", "W14 busy: 50 tasks, 4 permits, body of 1 ms", Workload::BusyPermits, Multi, 1, Semaphore, &[Semaphore, Permits], column::BUSY),
    case!("w14-busy-2", "W14 busy, over two processes of 25 tasks", Workload::BusyPermits, Multi, 2, Permits, &[Permits], column::BUSY),
    case!("w15", "W15 two keys at once, and one; client and server on one core", Workload::Pair, Pinned, 1, Ours, &[Ours, TwoKeys], column::TWO_KEYS),
    case!("w16", "W16 50 readers and 2 writers of one key, body of 1 ms", Workload::ReadersAndWriters, Multi, 1, RwLock, &[RwLock, Readers, RedissonReaders], column::WRITERS),
    case!("w16-2", "W16 over two processes of 25 readers and a writer", Workload::ReadersAndWriters, Multi, 2, Readers, &[Readers, RedissonReaders], column::WRITERS),
    case!("limit", "Limit: 64 keys; what the server alone can do; two worker threads", Workload::Pairs { keys: 64 }, Multi, 1, Generator, &[Generator, Raw, Ours], column::PAIRS),
    case!("telemetry", "what telemetry costs: one task, one key; client and server on one core", Workload::Pair, Pinned, 1, Ours, OBSERVED, column::OBSERVED_PAIR),
    case!("telemetry-hand-over", "what telemetry costs: the hand-over alone, as W3b; current-thread runtime", Workload::SaleInMemory, Current, 1, Ours, OBSERVED, column::HAND_OVER),
    case!("scale-locks", "Scale: 64 tasks, a key per lock; one server, and clusters", Workload::ScaleLocks, Multi, 1, Ours, &[Ours, ThreeMasters, SixMasters], column::SCALE_LOCKS),
    case!("scale-hand-offs", "Scale: two processes pass 32 keys to and fro; one server, and clusters", Workload::ScaleHandOffs, Multi, 2, Ours, &[Ours, ThreeMasters, SixMasters], column::SCALE_HAND_OFFS),
    case!("hanging-master", "Locks on two masters while the third hangs", Workload::HangingMaster, Multi, 1, AllUp, &[AllUp, AllUpAgain, OneHangs], column::HANGING_MASTER),
    case!("burst", "Burst: 100,000 tasks lock keys of their own at one moment", Workload::Burst { tasks: 100_000 }, Multi, 1, InGroups, &[InGroups, AtOnce], column::BURST),
];

/// The case of this id.
pub(crate) fn case(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id == id)
}

impl Case {
    /// How often baseline and ours are measured. Short and noisy cases have many rounds rather than long ones.
    pub(crate) fn rounds(&self, quick: bool) -> u32 {
        match self.workload {
            Workload::Leases | Workload::Crowd { .. } | Workload::Processes | Workload::Burst { .. } if quick => 1,
            Workload::Leases
            | Workload::Crowd { .. }
            | Workload::Burst { .. }
            | Workload::Fairness
            | Workload::Processes
            | Workload::ReadersAndWriters => 3,
            Workload::HangingMaster if quick => 5,
            Workload::HangingMaster => 45,
            _ if quick => 3,
            _ => 7,
        }
    }

    /// The contestants of a round, in order. The first one changes from round to round, so that every contestant follows each other one at
    /// some time; the two that are compared most closely, the baseline and ours, stay next to each other.
    pub(crate) fn order(&self, round: u32) -> Vec<Who> {
        let (mut ours, mut peers): (Vec<Who>, Vec<Who>) = self.contestants.iter().partition(|who| !who.is_peer());
        for group in [&mut ours, &mut peers] {
            let places = group.len().max(1);
            group.rotate_left(round as usize % places);
        }
        ours.extend(peers);
        ours
    }

    /// The column that only the counting allocator can fill.
    pub(crate) fn weighed(&self) -> Option<&'static str> {
        match self.workload {
            Workload::Pair if self.columns.iter().any(|column| column.value == "allocations per pair") => {
                Some("allocations per pair")
            }
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
        Workload::Pairs { .. } if run.who == Generator => limit::run(run),
        Workload::Pairs { keys } => w2::run::<C>(run, keys).await,
        Workload::Sale => w3::run::<C>(run).await,
        Workload::SaleInMemory => w3b::run::<C>(run).await,
        Workload::Fairness => w5::run::<C>(run).await,
        Workload::HandOff => w6::run::<C>(run).await,
        Workload::Leases => w7::run(run).await,
        Workload::Crowd { keys, waiters } => w8::run::<C>(run, keys, waiters).await,
        Workload::Attribute => w9::run(run).await,
        Workload::Sticky => w10::run::<C>(run).await,
        Workload::Turns => w11::run::<C>(run).await,
        Workload::Processes => w12::run::<C>(run).await,
        Workload::Shared => w13::run::<C>(run).await,
        Workload::BusyPermits => w14::run::<C>(run).await,
        Workload::ReadersAndWriters => w16::run::<C>(run).await,
        Workload::ScaleLocks => scale_locks::run(run).await,
        Workload::ScaleHandOffs => scale_hand_offs::run(run).await,
        Workload::HangingMaster => hanging_master::run(run).await,
        Workload::Burst { tasks } => burst::run(run, tasks).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_unit_of_time_is_shown_as_a_ratio() {
        for column in CASES.iter().flat_map(|case| case.columns) {
            let is_time =
                ["µs", "ms", "/s"].iter().any(|unit| column.value.split(' ').any(|word| word.ends_with(unit)));
            assert!(column.is_ratio || !is_time, "{column:?}");
            assert!(!column.title.contains("µs") && !column.title.contains(" ms"), "{column:?}");
        }
    }

    #[test]
    fn everybody_is_first_of_their_group_in_turn_and_baseline_and_ours_stay_side_by_side() {
        for case in CASES.iter().filter(|case| case.contestants.starts_with(&[Raw, Ours])) {
            let bounds = case.contestants.iter().filter(|who| !who.is_peer()).count();
            for round in 0..7 {
                let order = case.order(round);
                assert_eq!(order.len(), case.contestants.len());
                assert_eq!(order.first(), case.contestants.get(round as usize % bounds));
                assert!(order.iter().take(bounds).all(|who| !who.is_peer()));
            }
        }
    }
}
