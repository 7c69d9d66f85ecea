//! Starts the processes of one case for one contestant, and merges their outcomes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::child::Run;
use crate::column::{BUSIEST, IDLEST};
use crate::contestant::{Who, foreign};
use crate::outcome::Outcome;
use crate::process::Usage;
use crate::server::Calls;
use crate::servers::Servers;
use crate::stats::{Sample, float};
use crate::workload::{Flavour, Workload, scale_hand_offs, w3, w5, w6, w14, w16};

/// After this time a contestant counts as hanging.
const LIMIT: Duration = Duration::from_mins(4);
const QUICK_LIMIT: Duration = Duration::from_secs(25);

/// A child process; it ends with this value.
struct Part {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Measures once. A contestant's problem is part of the outcome.
pub(crate) fn measure(servers: &Servers, run: &Run, program: &PathBuf) -> Outcome {
    servers.pin(run.case.flavour == Flavour::Pinned);
    let outcome = servers.clear().and_then(|()| attempt(servers, run, program));
    servers.pin(false);
    outcome.unwrap_or_else(Outcome::failed)
}

fn attempt(servers: &Servers, run: &Run, program: &PathBuf) -> Result<Outcome, String> {
    let limit = Instant::now() + if run.quick { QUICK_LIMIT } else { LIMIT };
    let mut parts = Vec::new();
    for part in 0..run.processes() {
        parts.push(start(&Run { part: part + 1, ..run.clone() }, program)?);
    }
    let mut early = Vec::new();
    for part in &parts {
        let line = next(part, limit)?;
        // A child that can't even begin answers at once.
        if line != "ready" {
            early.push(read(&line));
        }
    }
    if let Some(outcome) = early.into_iter().next() {
        return Ok(outcome);
    }
    servers.reset_counts()?;
    let ids: Vec<u32> = parts.iter().map(|part| part.process.id()).collect();
    let before = (servers.usage(), ids.iter().map(|id| Usage::of(*id)).collect::<Vec<_>>());
    let hanging = if run.who == Who::OneHangs { Some(servers.hang()?) } else { None };
    for part in &mut parts {
        if let Some(input) = &mut part.input {
            input.write_all(b"go\n").and_then(|()| input.flush()).map_err(|error| error.to_string())?;
        }
    }
    let mut outcomes = Vec::new();
    for part in &parts {
        outcomes.push(read(&next(part, limit)?));
    }
    drop(hanging);
    let servers_used = servers.usage().since(&before.0);
    // The children wait to be ended, so that their threads can still be examined.
    let (mut client_seconds, mut wakeups) = (0.0, 0.0);
    for (id, before) in ids.iter().zip(&before.1) {
        let used = Usage::of(*id).since(before);
        client_seconds += used.seconds;
        wakeups += used.wakeups;
    }
    let mut outcome = conclude(run, outcomes)?;
    count(servers, run, &mut outcome)?;
    let locks = float(usize::try_from(outcome.locks).unwrap_or_default()).max(1.0);
    outcome.set("client µs per lock", client_seconds * 1e6 / locks);
    outcome.set("server µs per lock", servers_used.seconds * 1e6 / locks);
    outcome.set("wake-ups per lock", wakeups / locks);
    if let Some(span) = outcome.get("span s") {
        outcome.set("server, % of a core", servers_used.seconds / span * 100.0);
    }
    Ok(outcome)
}

fn start(run: &Run, program: &PathBuf) -> Result<Part, String> {
    let mut command = if run.who.is_foreign() { foreign::command(run)? } else { Command::new(program) };
    if !run.who.is_foreign() {
        command.args(run.arguments());
    }
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().map_err(|error| format!("can't start {}: {error}", program.display()))?;
    let input = process.stdin.take();
    let (sender, lines) = channel();
    if let Some(output) = process.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    Ok(Part { process, input, lines })
}

fn next(part: &Part, limit: Instant) -> Result<String, String> {
    match part.lines.recv_timeout(limit.saturating_duration_since(Instant::now())) {
        Ok(line) => Ok(line),
        Err(RecvTimeoutError::Timeout) => Err("HANGS: not done within the limit".to_owned()),
        Err(RecvTimeoutError::Disconnected) => Err("CRASHED: its process ended without a result".to_owned()),
    }
}

fn read(line: &str) -> Outcome {
    serde_json::from_str(line).unwrap_or_else(|error| Outcome::failed(format!("unreadable result: {error}: {line}")))
}

/// Merges the outcomes of the processes, and draws the conclusions that need all of them.
fn conclude(run: &Run, outcomes: Vec<Outcome>) -> Result<Outcome, String> {
    let processes: Vec<f64> = outcomes.iter().map(|outcome| outcome.shares.iter().sum()).collect();
    let held: f64 = outcomes.iter().filter_map(|outcome| outcome.get("held s")).sum();
    let longest_of = |value| outcomes.iter().filter_map(|outcome| outcome.get(value)).fold(0.0, f64::max);
    let longest = longest_of("longest wait ms");
    let longest_by_mode = ["longest wait of a reader ms", "longest wait of a writer ms"].map(longest_of);
    let holds: Vec<_> = outcomes.iter().map(|outcome| outcome.holds.clone()).collect();
    let mut outcome = Outcome::default();
    for part in outcomes {
        outcome.absorb(part);
    }
    match run.case.workload {
        Workload::Sale if run.processes() > 1 => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(w3::conclude(&run.url, &mut outcome))?;
        }
        Workload::Fairness => {
            outcome.set("longest wait ms", longest);
            outcome.set("held s", held);
            w5::conclude(&mut outcome, &processes);
        }
        Workload::BusyPermits => {
            outcome.set("held s", held);
            w14::conclude(&mut outcome);
        }
        Workload::ReadersAndWriters => w16::conclude(&mut outcome, longest_by_mode),
        Workload::HandOff => w6::conclude(&mut outcome, &holds),
        Workload::ScaleHandOffs => scale_hand_offs::conclude(&mut outcome, &holds),
        _ => {}
    }
    Ok(outcome)
}

/// Commands, as counted by the servers. `SET` includes those inside scripts, which makes this an upper bound.
fn count(servers: &Servers, run: &Run, outcome: &mut Outcome) -> Result<(), String> {
    let by_server = servers.calls()?;
    let at = |calls: &BTreeMap<String, Calls>, names: &[&str]| -> f64 {
        names.iter().filter_map(|name| calls.get(*name)).map(|calls| calls.count).sum()
    };
    let of = |names: &[&str]| -> f64 { by_server.iter().map(|calls| at(calls, names)).sum() };
    let deleting = ["delifeq", "delex"];
    let locking = ["set", "setnx", "evalsha", "eval", "evalsha_ro", deleting[0], deleting[1]];
    // An `EXISTS` goes with each.
    let mut commands = of(&locking) + of(&deleting);
    if by_server.len() > 1 {
        let share = commands / float(by_server.len());
        let parts = Sample::new(by_server.iter().map(|calls| at(calls, &locking) / share));
        outcome.set(BUSIEST, parts.max());
        outcome.set(IDLEST, parts.min());
    }
    let others = of(&["ping", "subscribe", "script|load"]);
    let locks = float(usize::try_from(outcome.locks).unwrap_or_default()).max(1.0);
    if run.case.workload == Workload::Sale {
        // Each body writes the stock once.
        commands -= locks;
    }
    commands += others;
    if run.who == Who::Blog {
        commands += of(&["del"]);
    }
    outcome.set("commands per lock", commands / locks);
    let sale = f64::from(run.size(1000, 300));
    outcome.set("commands per sale", commands / locks * sale);
    if let Some(hand_offs) = outcome.get("hand-offs").filter(|hand_offs| *hand_offs > 0.0) {
        outcome.set("commands per hand-off", commands / hand_offs);
    }
    if let Some(renewals) = outcome.get("hundreds renewed") {
        outcome.set("commands per 100 leases", commands / renewals);
    }
    for (name, column) in [("set", "µs per SET"), ("evalsha", "µs per EVALSHA")] {
        let micros: f64 = by_server.iter().filter_map(|calls| calls.get(name)).map(|calls| calls.micros).sum();
        if micros > 0.0 {
            outcome.set(column, micros / of(&[name]));
        }
    }
    Ok(())
}
