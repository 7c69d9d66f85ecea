//! [`Column`], a table's column for a contestant: a ratio to the baseline of the same round, or a plain number. Never a time:
//! times from another machine, or from another minute, say nothing.

use crate::workload::{w6, w8};

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// The name of its value in the outcome.
    pub(crate) value: &'static str,
    /// Whether it is shown as a multiple of the baseline's value in the same round. All values with a unit of time are.
    pub(crate) is_ratio: bool,
}

const fn ratio(title: &'static str, value: &'static str) -> Column {
    Column { title, value, is_ratio: true }
}

/// A value without a unit of time: a count, a share, or a ratio within one run.
const fn plain(value: &'static str) -> Column {
    Column { title: value, value, is_ratio: false }
}

const CLIENT: Column = ratio("client CPU per lock", "client µs per lock");
const SERVER: Column = ratio("server CPU per lock", "server µs per lock");
const COMMANDS: Column = plain("commands per lock");

/// The commands of the busiest master and of the least busy one, each relative to its share of the slots.
pub(crate) const BUSIEST: &str = "busiest master / its share";
pub(crate) const IDLEST: &str = "idlest master / its share";

pub(crate) const PAIR: &[Column] =
    &[ratio("median", "p50 µs"), ratio("mean", "µs per pair"), ratio("p99", "p99 µs"), COMMANDS, CLIENT, SERVER];
pub(crate) const OBSERVED_PAIR: &[Column] = &[ratio("median", "p50 µs"), ratio("mean", "µs per pair"), CLIENT];
pub(crate) const PROFILE: &[Column] = &[
    ratio("mean", "µs per pair"),
    plain("allocations per pair"),
    COMMANDS,
    CLIENT,
    SERVER,
    ratio("server in a SET", "µs per SET"),
    ratio("server in an EVALSHA", "µs per EVALSHA"),
    plain("wake-ups per lock"),
];
pub(crate) const PAIRS: &[Column] = &[ratio("pairs per second", "pairs/s"), COMMANDS, CLIENT, SERVER];
pub(crate) const SALE: &[Column] =
    &[ratio("the sale", "wall ms"), COMMANDS, CLIENT, SERVER, plain("wake-ups per lock")];
/// What a hand-over takes in a process's first sale.
pub(crate) const FIRST_SALE: &str = "µs per hand-over, first sale";
pub(crate) const HAND_OVER: &[Column] =
    &[ratio("per item", "µs per hand-over"), ratio("first sale", FIRST_SALE), plain("commands per sale"), CLIENT];
pub(crate) const SPREAD: &[Column] =
    &[ratio("the sale", "wall ms"), plain("hand-offs"), plain("commands per hand-off"), CLIENT, SERVER];
pub(crate) const FAIR: &[Column] = &[
    plain("longest wait / cycle"),
    plain("Jain"),
    plain("Jain of processes"),
    ratio("locks per second", "locks/s"),
    plain("nobody inside, %"),
];
pub(crate) const HAND_OFF: &[Column] = &[
    plain("hand-off / PING"),
    plain("hand-off / PING after a pause"),
    plain("hand-off / wake-up"),
    plain("p99 / PING"),
    plain(w6::FOLLOWED),
    COMMANDS,
];
pub(crate) const LEASES: &[Column] = &[
    plain("% of a core"),
    plain("server, % of a core"),
    plain("commands per 100 leases"),
    plain("wake-ups per 100 leases"),
    plain("bytes per hold"),
    plain("resident bytes per hold"),
];
pub(crate) const CROWD: &[Column] = &[
    ratio("drain per waiter", "µs per waiter"),
    plain(w8::GROWTH),
    plain("bytes per waiter"),
    plain("resident bytes per waiter"),
    COMMANDS,
];
pub(crate) const SCALE_LOCKS: &[Column] =
    &[ratio("locks per second", "locks/s"), COMMANDS, CLIENT, SERVER, plain(BUSIEST), plain(IDLEST)];
pub(crate) const SCALE_HAND_OFFS: &[Column] = &[
    ratio("hand-offs per second", "hand-offs/s"),
    ratio("hand-off", "hand-off µs"),
    plain(w6::FOLLOWED),
    plain("commands per hand-off"),
    CLIENT,
    SERVER,
];
pub(crate) const BURST: &[Column] = &[
    ratio("locks per second", "locks/s"),
    COMMANDS,
    CLIENT,
    SERVER,
    plain("resident bytes per task"),
    plain("reconnects"),
];
pub(crate) const HANGING_MASTER: &[Column] = &[
    ratio("p99", "p99 µs"),
    ratio("median", "p50 µs"),
    ratio("p99.9", "p99.9 µs"),
    ratio("locks per second", "locks/s"),
];
pub(crate) const STICKY: &[Column] =
    &[ratio("mean", "µs per lock"), ratio("median", "p50 µs"), ratio("p99", "p99 µs"), COMMANDS, CLIENT, SERVER];
pub(crate) const TURNS: &[Column] = &[ratio("turn", "µs per turn"), COMMANDS, CLIENT, SERVER];
pub(crate) const PROCESSES: &[Column] = &[
    plain("server CPU per hand-off, 1000 processes / 2"),
    plain("server CPU per hand-off, 100 processes / 2"),
    plain("server CPU per hand-off, 10 processes / 2"),
    plain("1000 wait, % of a core of the server"),
    plain("100 wait, % of a core of the server"),
    COMMANDS,
];
pub(crate) const SHARED: &[Column] = &[ratio("per lock", "µs per lock"), COMMANDS, CLIENT];
pub(crate) const BUSY: &[Column] = &[plain("permits in use, %"), COMMANDS, CLIENT];
pub(crate) const TWO_KEYS: &[Column] =
    &[ratio("mean", "µs per pair"), ratio("median", "p50 µs"), COMMANDS, CLIENT, SERVER];
pub(crate) const WRITERS: &[Column] = &[
    plain("a writer's longest wait / cycle"),
    plain("a reader's longest wait / cycle"),
    ratio("locks per second", "locks/s"),
    COMMANDS,
];
pub(crate) const ATTRIBUTE: &[Column] = &[plain("attribute / hand")];
