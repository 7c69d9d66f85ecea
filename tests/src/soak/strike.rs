//! [`Strike`]: a planned fault. [`Place`]: where the locks are, and which faults can happen there.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Where the locks of a round are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Place {
    /// One server.
    Redis,
    /// A master with a replica, under three sentinels.
    Sentinel,
    /// A cluster of three masters with a replica each.
    Cluster,
    /// A majority of three servers.
    Quorum,
}

/// A planned fault.
#[derive(Clone, Debug)]
pub struct Strike {
    /// When, counted from the start of the faults.
    pub at: Duration,
    /// Which fault.
    pub kind: Kind,
    /// A random number that chooses the victim.
    pub victim: usize,
    /// How long it lasts.
    pub length: Duration,
}

/// What a nemesis can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it; `nemesis.rs` and `arena.rs` play the faults")]
pub enum Kind {
    StopWorker,
    KillWorker,
    KillClients,
    KillSubscribers,
    FlushScripts,
    FlushAll,
    PauseAll,
    PauseWrites,
    SleepServer,
    DelayCommand,
    DelayReply,
    CutBeforeCommand,
    CutAfterCommand,
    MuteFromReply,
    DeafLine,
    MuteLine,
    BlackHole,
    ResetLine,
    // Of the single server.
    StopServer,
    RestartServer,
    RestartEmpty,
    /// The server is killed, and started again after a while.
    KillServer,
    // Of a master with a replica.
    FailOver,
    KillMaster,
    StopMaster,
    StopMasterUntilReplaced,
    MoveSlots,
    // Of one server of several.
    StopOne,
    CutOffOne,
    RestartOne,
    RestartOneEmpty,
}

const REDIS: &[(Kind, u32)] = &[
    (Kind::StopWorker, 10),
    (Kind::KillWorker, 5),
    (Kind::StopServer, 6),
    (Kind::RestartServer, 2),
    (Kind::KillClients, 4),
    (Kind::KillSubscribers, 4),
    (Kind::FlushScripts, 4),
    (Kind::PauseAll, 3),
    (Kind::PauseWrites, 3),
    (Kind::SleepServer, 3),
    (Kind::DelayCommand, 14),
    (Kind::DelayReply, 14),
    (Kind::CutBeforeCommand, 6),
    (Kind::CutAfterCommand, 8),
    (Kind::MuteFromReply, 8),
    (Kind::DeafLine, 3),
    (Kind::MuteLine, 3),
    (Kind::BlackHole, 3),
    (Kind::ResetLine, 3),
];
/// Extra faults when the server may lose its data.
const FORGETFUL: &[(Kind, u32)] = &[(Kind::FlushAll, 10), (Kind::RestartEmpty, 5)];
// Sentinels and nodes give clients each other's addresses, so there is no proxy in between, and no fault of the wire.
const SENTINEL: &[(Kind, u32)] = &[
    (Kind::StopWorker, 10),
    (Kind::KillWorker, 5),
    (Kind::KillClients, 4),
    (Kind::KillSubscribers, 4),
    (Kind::FlushScripts, 4),
    (Kind::FailOver, 4),
    (Kind::KillMaster, 4),
    (Kind::StopMaster, 5),
    (Kind::StopMasterUntilReplaced, 3),
];
const CLUSTER: &[(Kind, u32)] = &[
    (Kind::StopWorker, 10),
    (Kind::KillWorker, 5),
    (Kind::KillClients, 4),
    (Kind::KillSubscribers, 4),
    (Kind::FlushScripts, 4),
    (Kind::FailOver, 4),
    (Kind::KillMaster, 4),
    (Kind::StopMaster, 4),
    (Kind::StopMasterUntilReplaced, 2),
    (Kind::MoveSlots, 8),
];
const QUORUM: &[(Kind, u32)] = &[
    (Kind::StopWorker, 10),
    (Kind::KillWorker, 5),
    (Kind::KillClients, 4),
    (Kind::KillSubscribers, 4),
    (Kind::FlushScripts, 4),
    (Kind::PauseAll, 3),
    (Kind::PauseWrites, 3),
    (Kind::SleepServer, 3),
    (Kind::DelayCommand, 10),
    (Kind::DelayReply, 10),
    (Kind::CutBeforeCommand, 4),
    (Kind::CutAfterCommand, 6),
    (Kind::MuteFromReply, 6),
    (Kind::DeafLine, 3),
    (Kind::MuteLine, 3),
    (Kind::BlackHole, 3),
    (Kind::ResetLine, 3),
    (Kind::StopOne, 8),
    (Kind::CutOffOne, 8),
    (Kind::RestartOne, 6),
    (Kind::RestartOneEmpty, 8),
];

impl Place {
    /// Whether there are proxies between workers and servers.
    pub(super) fn has_proxies(self) -> bool {
        matches!(self, Self::Redis | Self::Quorum)
    }

    /// Every fault at this place, with its relative frequency.
    pub(crate) fn kinds(self, forgetful: bool) -> impl Iterator<Item = (Kind, u32)> {
        let kinds = match self {
            Self::Redis => REDIS,
            Self::Sentinel => SENTINEL,
            Self::Cluster => CLUSTER,
            Self::Quorum => QUORUM,
        };
        let more = if forgetful { FORGETFUL } else { &[] };
        kinds.iter().chain(more).copied()
    }
}

impl Kind {
    /// Whether it happens to a server, and so only one at a time.
    #[must_use]
    pub fn is_of_servers(self) -> bool {
        matches!(
            self,
            Self::StopServer
                | Self::RestartServer
                | Self::RestartEmpty
                | Self::KillServer
                | Self::FailOver
                | Self::KillMaster
                | Self::StopMaster
                | Self::StopMasterUntilReplaced
                | Self::MoveSlots
                | Self::StopOne
                | Self::CutOffOne
                | Self::RestartOne
                | Self::RestartOneEmpty
        )
    }

    /// How long it takes until all is settled again, at places with several servers.
    pub(super) fn lasts(self) -> Duration {
        Duration::from_millis(match self {
            Self::StopOne | Self::CutOffOne => 3000,
            Self::FailOver | Self::MoveSlots | Self::StopMaster => 3500,
            Self::RestartOne | Self::RestartOneEmpty | Self::KillMaster | Self::StopMasterUntilReplaced => 5000,
            _ => 0,
        })
    }
}
