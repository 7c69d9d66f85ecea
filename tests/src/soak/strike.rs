//! [`Strike`]: a fault to come, and which faults there are at each place.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Where the locks of a round are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Place {
    /// On one server.
    Redis,
    /// On a master with a replica, under three sentinels.
    Sentinel,
    /// On three masters with a replica each.
    Cluster,
    /// On a majority of three servers.
    Quorum,
}

/// A fault to come.
#[derive(Clone, Debug)]
pub struct Strike {
    /// When, counted from the first one.
    pub at: Duration,
    /// What.
    pub kind: Kind,
    /// A random number that chooses the victim.
    pub victim: usize,
    /// For how long.
    pub length: Duration,
}

/// What a nemesis can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it, and `nemesis.rs` and `arena.rs` what is done")]
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
    // Of one server that is all there is.
    StopServer,
    RestartServer,
    RestartEmpty,
    /// Killed, and started again after a while.
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
/// What comes on top when the server may be made to forget.
const FORGETFUL: &[(Kind, u32)] = &[(Kind::FlushAll, 10), (Kind::RestartEmpty, 5)];
// Sentinels and nodes name each other's addresses to clients: there is no proxy between, and no fault of the wire.
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
    /// Whether something is between workers and servers that can delay what passes.
    pub(super) fn has_proxies(self) -> bool {
        matches!(self, Self::Redis | Self::Quorum)
    }

    /// Every fault there, with how often it comes, relative to the others.
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
    /// Whether it happens to servers as such, one at a time.
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

    /// How long it takes until all is settled again, where there are several servers.
    pub(super) fn lasts(self) -> Duration {
        Duration::from_millis(match self {
            Self::StopOne | Self::CutOffOne => 3000,
            Self::FailOver | Self::MoveSlots | Self::StopMaster => 3500,
            Self::RestartOne | Self::RestartOneEmpty | Self::KillMaster | Self::StopMasterUntilReplaced => 5000,
            _ => 0,
        })
    }
}
