//! The benchmark: this project's lock beside the bare commands, a mutex, and the locks of others.
//!
//! `cargo run --release -p bench -- all` measures everything.
//!
//! Every measurement runs in processes of its own (`child.rs`), with servers of its own (`servers.rs`); this program starts
//! both. So contestants can't disturb one another, a contestant that hangs is ended, and what a process uses can be read
//! from outside.
//!
//! A round runs the contestants of a case in turn. The tables show ratios to the baseline of the same round (`column.rs`),
//! because the machine's speed changes from minute to minute. Times are in the JSON file only.

use std::process::ExitCode;

mod arena;
mod arguments;
mod chart;
mod child;
mod column;
mod contestant;
mod hand_off;
mod measure;
mod numbers;
mod outcome;
mod page;
mod process;
mod report;
mod results;
mod rounds;
mod server;
mod servers;
mod stats;
mod verdict;
mod workload;

/// What the counting allocator has counted so far.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// Allocations and reallocations.
    pub allocations: usize,
    /// Bytes allocated and not freed.
    pub live_bytes: isize,
}

/// Reads the counting allocator.
pub type Weigh = fn() -> Weight;

/// The program, under an allocator that counts or not.
#[must_use]
pub fn main(weigh: Option<Weigh>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = words.split_first()
        && first == "child"
    {
        return child::main(rest, weigh);
    }
    let outcome = arguments::Arguments::read(&words)
        .map_err(|problem| format!("{problem}\n{}", arguments::USAGE))
        .and_then(|arguments| rounds::run(&arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
