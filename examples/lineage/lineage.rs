//! The museum of published locks: five articles' algorithms, one of them in five versions, and this project's lock, all
//! under the same faults and judged by the same checker.
//!
//! `cargo run --release -p lineage`, with `--quick`, `--draw`, `--svg FILE`, `--page FILE`, `--seed N`. It needs a
//! redis-server on the PATH. Exit status 1: this project's lock broke a promise, or a published one was not caught where it is wrong.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use museum::{Table, Tour};

/// Plays published locks and this one under the same faults, and says which promises each of them breaks
#[derive(Debug, Parser)]
struct Arguments {
    /// Play every cell once, in less than a minute
    #[arg(long)]
    quick: bool,
    /// Repeats the random decisions of an earlier run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also draw the stretches of history that show what was broken
    #[arg(long)]
    draw: bool,
    /// Write the table as a drawing
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write what was recorded as a page for a browser, which needs no other file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "museum.html")]
    page: Option<PathBuf>,
}

fn main() -> ExitCode {
    if let Some(part) = tests::child::role() {
        museum::serve(&part);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    let start = Instant::now();
    let tour = Tour { seed: arguments.seed, takes: if arguments.quick { 1 } else { 3 }, test: None };
    let is_watched = std::io::stderr().is_terminal();
    let table = tour.play(|done, all| {
        if is_watched {
            eprint!("\r{done} of {all} ");
            let _ = std::io::stderr().flush();
        }
    });
    if is_watched {
        eprint!("\r");
    }
    if arguments.draw {
        println!("{}", table.drawn());
    }
    println!("{table}\n\n  seed {}, {:.0?}", arguments.seed, start.elapsed());
    let files = [(arguments.svg, museum::draw as fn(&Table) -> String), (arguments.page, museum::page)];
    for (file, make) in files {
        let Some(file) = file else { continue };
        if let Err(error) = std::fs::write(&file, make(&table)) {
            eprintln!("error: {}: {error}", file.display());
            return ExitCode::FAILURE;
        }
        println!("  written: {}", file.display());
    }
    let mistakes = table.mistakes();
    for mistake in &mistakes {
        println!("  WRONG: {mistake}");
    }
    if mistakes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
