//! [`HALL`]: the exhibits, and the faults that each must show.

use history::Lock;
use tests::soak::Ours;

use crate::fault::Fault;
use crate::part::{Part, act};
use crate::published::{
    a_annotation::Annotation, b_user_id::UserId, c_daemon::Daemon, d1_setnx::First, d2_expiry::Second,
    d3_client_id::Third, d4_script::Fourth, d5_retry::Fifth, e_timestamp::Timestamp,
};
use crate::verdict::Promise;

/// The plate next to an exhibit.
#[derive(Clone, Copy, Debug)]
pub struct Plate {
    /// Short, and unique.
    pub name: &'static str,
    /// How it locks and unlocks, in a few words.
    pub about: &'static str,
    /// Where it is known to be wrong: the promise that must be seen broken under the fault. Empty: it must be right
    /// everywhere.
    pub wrong: &'static [(Fault, Promise)],
    /// The command that takes a free lock, and the one that releases it.
    pub(crate) commands: [&'static str; 2],
    pub(crate) tells: bool,
    pub(crate) queues: bool,
    pub(crate) act: fn(&Part),
    /// Whether the end of a lease is in the value, and unknown to the server.
    pub(crate) ends_in_value: bool,
}

const fn plate<L: Lock>(
    name: &'static str,
    about: &'static str,
    commands: [&'static str; 2],
    wrong: &'static [(Fault, Promise)],
) -> Plate {
    Plate { name, about, wrong, commands, tells: L::TELLS, queues: L::QUEUES, act: act::<L>, ends_in_value: false }
}

/// All exhibits.
pub const HALL: [Plate; 10] = [
    plate::<Annotation>(
        "A",
        "SETNX, EXPIRE; DEL",
        ["SETNX", "DEL"],
        &[
            (Fault::HolderKilled, Promise::Progress),
            (Fault::SlowHolder, Promise::Exclusion),
            (Fault::LateRelease, Promise::Ownership),
        ],
    ),
    plate::<UserId>(
        "B",
        "SETNX, EXPIRE; GET DEL",
        ["SETNX", "DEL"],
        &[(Fault::HolderKilled, Promise::Progress), (Fault::LateRelease, Promise::Ownership)],
    ),
    plate::<Daemon>(
        "C",
        "scripts and a daemon",
        ["EVAL", "EVAL"],
        &[(Fault::Calm, Promise::NoLeaks), (Fault::CutOff, Promise::Exclusion)],
    ),
    plate::<First>("D1", "SETNX; DEL", ["SETNX", "DEL"], &[(Fault::HolderKilled, Promise::Progress)]),
    plate::<Second>(
        "D2",
        "SET NX PX; DEL",
        ["SET", "DEL"],
        &[
            (Fault::SlowHolder, Promise::Exclusion),
            (Fault::SlowHolder, Promise::Ownership),
            (Fault::LateRelease, Promise::Ownership),
        ],
    ),
    plate::<Third>("D3", "SET NX PX; GET DEL", ["SET", "DEL"], &[(Fault::LateRelease, Promise::Ownership)]),
    plate::<Fourth>(
        "D4",
        "SET NX PX; script",
        ["SET", "EVAL"],
        &[(Fault::SlowHolder, Promise::Exclusion), (Fault::ReplyLost, Promise::NoOrphans)],
    ),
    plate::<Fifth>("D5", "D4, three tries", ["SET", "EVAL"], &[(Fault::Calm, Promise::Exclusion)]),
    Plate {
        ends_in_value: true,
        ..plate::<Timestamp>(
            "E",
            "SETNX a time; DEL",
            ["SETNX", "DEL"],
            &[(Fault::ClocksApart, Promise::Exclusion), (Fault::LateRelease, Promise::Ownership)],
        )
    },
    // A process's first release is sent as the script's text.
    plate::<Ours>("ours", "this project", ["SET", "EVAL"], &[]),
];

impl Plate {
    /// The exhibit with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        HALL.iter().find(|plate| plate.name == name)
    }

    /// Whether it is an article's lock.
    #[must_use]
    pub fn is_published(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// The promises that must be seen broken under a fault.
    pub(crate) fn wrong_under(&self, fault: Fault) -> impl Iterator<Item = Promise> {
        self.wrong.iter().filter(move |(under, _)| *under == fault).map(|(_, promise)| *promise)
    }
}
