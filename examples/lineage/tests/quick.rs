//! The quick tour: every published lock is caught where it is wrong, and this project's lock never is.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use museum::Tour;
use tests::child;

/// Not a test of its own: what the processes of this file do.
#[test]
fn worker() {
    if let Some(part) = child::role() {
        museum::serve(&part);
    }
}

#[test]
fn every_published_lock_is_caught_where_it_is_wrong_and_ours_keeps_every_promise() {
    let table = Tour { seed: 1, takes: 1, test: Some("worker") }.play(|_, _| {});
    println!("{table}");
    let mistakes = table.mistakes();
    assert!(mistakes.is_empty(), "{}\n{table}", mistakes.join("\n"));
}
