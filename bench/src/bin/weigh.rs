//! The benchmark's child processes that count allocations. Counting costs time, so it is kept from the other processes.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    bench::main(Some(|| {
        let stats = ALLOCATOR.stats();
        let grown = isize::try_from(stats.bytes_allocated).unwrap_or_default()
            - isize::try_from(stats.bytes_deallocated).unwrap_or_default();
        bench::Weight { allocations: stats.allocations + stats.reallocations, live_bytes: grown }
    }))
}
