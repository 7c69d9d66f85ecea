//! The profile: where an uncontended lock's time goes.

use std::fmt::Write;
use std::path::PathBuf;

use crate::child::Run;
use crate::contestant::Who;
use crate::measure::measure;
use crate::server::Server;
use crate::workload;

/// Allocations, commands and their cost on the server, wake-ups: ours beside the bare commands.
pub(crate) fn table(server: &Server, this: &PathBuf, weighing: Option<&PathBuf>, quick: bool) -> String {
    let mut text = "\n### Profile of an uncontended pair (one task, client and server on one core)\n\n".to_owned();
    text.push_str("| | allocations | commands | µs per SET | µs per EVALSHA | client µs | server µs | wake-ups |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    let Some(case) = workload::case("w1-pinned") else { return text };
    for who in [Who::Raw, Who::Ours] {
        let run = Run { case, who, url: server.url(), part: 0, quick, weigh: None };
        let mut outcome = measure(server, &run, this);
        if let Some(weighing) = weighing
            && let Some(allocations) = measure(server, &run, weighing).get("allocations per pair")
        {
            outcome.set("allocations per pair", allocations);
        }
        let columns = [
            "allocations per pair",
            "commands per lock",
            "µs per SET",
            "µs per EVALSHA",
            "client µs per lock",
            "server µs per lock",
            "wake-ups per lock",
        ];
        let cells: Vec<String> =
            columns.iter().map(|column| outcome.get(column).map_or("–".to_owned(), crate::report::number)).collect();
        // Writing to a string can't fail.
        let _ = writeln!(text, "| {} | {} |", who.title(), cells.join(" | "));
    }
    text
}
