//! What one lock costs the client and the server, in instructions, and the client in allocations: numbers that depend little on how
//! busy the machine is.
//!
//! ```console
//! $ cargo run --release -p yardstick                    # needs valgrind and redis-server; fails when something grew
//! $ cargo run --release -p yardstick -- --write         # keeps what it counts in bench/yardstick/counts.txt
//! $ cargo run -p yardstick -- --allocations             # allocations alone, without valgrind
//! $ cargo run -p yardstick --features metrics -- --allocations    # the same of locks that count for metrics
//! ```
//!
//! Each case runs in a process of its own. Instructions are those in user space, counted by valgrind's `callgrind`, of all threads
//! of that process. A case runs twice, with more repetitions the second time, and the difference counts: it has no start and no
//! end. The kernel's work is not counted. For the server's instructions the case runs twice more, with the server under valgrind
//! and the locks without it.
//! The same code may take up to a third more instructions on another machine. One cause: a copy of several kilobytes is one
//! instruction for each byte, or one for 32 bytes, and glibc chooses by the processor. So what a change costs shows when the commit
//! before it is counted on the same machine.
//!
//! Why no benchmark crate: gungraun (before: iai-callgrind) wants a runner of exactly the same version to be installed, and
//! counts a single process, without another such as the server.

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

mod cases;
mod count;
mod server;
mod table;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["child", case, count, url] => cases::run(case, count, url, || {
            let stats = ALLOCATOR.stats();
            stats.allocations + stats.reallocations
        }),
        [] => table::check(count::Wanted::All),
        ["--allocations"] => table::check(count::Wanted::Allocations),
        ["--write"] => table::write(),
        _ => Err("usage: yardstick [--allocations | --write]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
