//! Several processes use locks while a nemesis breaks what the locks depend on, for any length of time.
//!
//! A run is a series of rounds of half a minute. Each round has its own servers, workers and history. It is calm at first, then come
//! faults, then everything is healed, and the checks judge the history. The seed of a round decides every random choice.
//!
//! With `--hosted` the password changes every few seconds, and in a cluster a replica confirms each grant. With `--beside PROGRAM` every
//! second worker runs another version.

pub mod arena;
pub mod interrupt;
pub mod lookout;
pub mod nemesis;
pub mod ours;
pub mod passwords;
pub mod plan;
pub mod register;
pub mod report;
pub mod round;
pub mod strike;
pub mod verdict;
pub mod worker;
pub mod workers;
pub mod workload;

pub use ours::{Held, OnQuorum, Ours, play};
pub use plan::Plan;
pub use report::Report;
pub use round::round;
pub use strike::{Kind, Place, Strike};
pub use worker::serve;
