//! Tries the attribute on public crates: what it refuses, what it breaks, and what it costs the compiler.
//!
//! ```console
//! $ cargo run --release                          # in this folder: the crates of LIST, into report.md
//! $ cargo run --release -- tower@0.5.3 ../mine   # these, to look at
//! ```
//!
//! A crate is checked as it is, and then with `#[cache_lock]` on each of its fns and traits. Attributes that the macro or the compiler
//! refuses are removed one by one. The place of each refusal is written to stderr.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use comparison::{Class, Comparison};
use package::Package;

mod comparison;
mod package;
mod page;
mod sites;

/// Puts the attribute on every fn and trait of crates, and compares what the compiler says.
#[derive(Debug, Parser)]
struct Arguments {
    /// `NAME`, `NAME@VERSION`, or the folder of a crate as cargo unpacks it; without any, those of the page
    crates: Vec<String>,
    /// Where crates are unpacked and checked
    #[arg(long, default_value = "target/crater")]
    folder: PathBuf,
    /// The page with the table, in place of stdout
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = Arguments::parse();
    let mut to = arguments.write;
    if arguments.crates.is_empty() {
        arguments.crates = page::LIST.split_whitespace().map(str::to_owned).collect();
        to = to.or_else(|| Some(PathBuf::from(page::PATH)));
    }
    std::fs::create_dir_all(&arguments.folder)?;
    let folder = arguments.folder.canonicalize()?;
    let mut comparisons = Vec::new();
    for wanted in &arguments.crates {
        eprintln!("{wanted}");
        match Package::prepare(wanted, &folder).and_then(Comparison::of) {
            Ok(comparison) => {
                tell(&comparison);
                comparisons.push(comparison);
            }
            Err(error) => eprintln!("  left out: {error:#}"),
        }
        // After each crate, so that an interrupted run has a page of the crates before.
        if let Some(path) = &to {
            std::fs::write(path, page::page(&comparisons))?;
        }
    }
    if to.is_none() {
        print!("{}", page::page(&comparisons));
    }
    let has_errors = comparisons.iter().any(|comparison| !comparison.errors.is_empty());
    Ok(if has_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(comparison: &Comparison) {
    for (class, places) in &comparison.refused {
        let (by, words) = match class {
            Class::Macro(words) => ("macro", words),
            Class::Compiler(words) => ("compiler", words),
        };
        eprintln!("  refused by the {by}: {words}: {}", places.join(" "));
    }
    let others = [
        ("error", &comparison.errors),
        ("new warning", &comparison.new_warnings),
        ("lost warning", &comparison.lost_warnings),
    ];
    for (what, all) in others {
        for one in all {
            eprintln!("  {what}: {one}");
        }
    }
}
