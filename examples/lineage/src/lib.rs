//! A museum of published locks: each next to this project's own, under the same faults, judged by the same checker.
//!
//! `published` has the locks, `hall` says where each is wrong, `fault` what happens to all of them. A cell of the table
//! is one lock under one fault: `stage` sets it up and breaks things, `part` is what its processes do, `store` is what the locks
//! protect, `verdict` turns the checker's findings into promises of `docs/guarantees.md`, `reel` keeps the stretch of the run that
//! shows them. `tour` plays every cell; `table`, `chart` and `page` show it.

#![allow(clippy::expect_used, reason = "a harness fails by panicking")]

mod chart;
mod clock;
mod fault;
mod hall;
mod page;
mod part;
mod patience;
mod published;
mod reel;
mod stage;
mod store;
mod table;
mod tour;
mod verdict;

pub use chart::draw;
pub use fault::Fault;
pub use hall::{HALL, Plate};
pub use page::page;
pub use part::serve;
pub use reel::{Kind, Reel, Step};
pub use stage::{Cell, Finding};
pub use table::Table;
pub use tour::Tour;
pub use verdict::Promise;
