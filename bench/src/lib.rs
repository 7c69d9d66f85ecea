//! The benchmark: this project's lock compared with the bare commands, a mutex, and the locks of others.
//!
//! `cargo run --release -p bench -- all` measures everything.
//!
//! Every measurement runs in its own processes (`child.rs`), with its own servers (`servers.rs`); this program starts both. So
//! contestants can't disturb each other, a contestant that hangs is ended, and the resources of a process can be read from
//! outside.
//!
//! A round runs the contestants of a case in turn. The tables show ratios to the baseline of the same round (`column.rs`),
//! because the machine's speed changes from minute to minute. Times are only in the JSON file.

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

/// The program, under an allocator that counts or one that does not.
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
