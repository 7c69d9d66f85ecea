//! A lock under load from several processes while a nemesis breaks what it rests on, for as long as one likes.
//!
//! A run is a row of rounds of half a minute. Each has servers of its own, workers of its own and a history of its
//! own: calm, then faults, then healed; then the history is judged. The seed of a round decides every random choice.

pub mod arena;
pub mod interrupt;
pub mod lookout;
pub mod nemesis;
pub mod ours;
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
