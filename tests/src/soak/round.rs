//! [`round`]: starts servers, workers and faults, then judges the history.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::arena::{self, Arena};
use super::lookout::{Lookout, keep_watch, lock};
use super::nemesis::Nemesis;
use super::passwords::Passwords;
use super::plan::Plan;
use super::report::Report;
use super::worker::{Role, watch};
use super::workers::Workers;
use crate::aof::Tail;
use crate::server::Server;
use history::claims::HARNESS;
use history::event::{now, span};
use history::operations::{Operation, operations};
use history::{History, Lock, Recorder, What};

/// How to run a round.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "it holds a closure")]
pub struct Setting<'a> {
    /// The name of the lock to use, which workers find in their role.
    pub lock: &'a str,
    /// The test of this binary that runs a worker; `None` when `main` does.
    pub test: Option<&'static str>,
    /// Whether to stop early.
    pub is_over: &'a dyn Fn() -> bool,
    /// Where to copy the history and the plan.
    pub keep: Option<&'a Path>,
    /// The program of another version, which every second worker runs.
    pub beside: Option<&'a Path>,
    /// A file to append the history to, in the format of other checkers.
    pub history: Option<&'a Path>,
}

impl<'a> Setting<'a> {
    /// A round that keeps no files.
    pub fn new(lock: &'a str, test: Option<&'static str>, is_over: &'a dyn Fn() -> bool) -> Self {
        Self { lock, test, is_over, keep: None, beside: None, history: None }
    }
}

/// Plays one round with locks of type `L`; nothing is left running.
#[must_use]
pub fn round<L: Lock>(plan: &Plan, setting: Setting<'_>) -> Report {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let over = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (mut recorder, over) = (Recorder::new(folder.path(), HARNESS, 1), Arc::clone(&over));
        std::thread::spawn(move || watch(&mut recorder, |_| over.load(Ordering::SeqCst)))
    };
    let faults = play::<L>(plan, setting, folder.path());
    over.store(true, Ordering::SeqCst);
    watcher.join().expect("the watcher ends");
    let history = History::read(folder.path());
    let report = Report::of(plan, &history, &plan.bounds::<L>(), faults);
    if (setting.is_over)() {
        return report;
    }
    if let Some(file) = setting.history {
        let round = format!("{:?}/{}", plan.place, plan.seed).to_lowercase();
        append(&operations(&round, &history, L::TELLS), file);
    }
    if let Some(keep) = setting.keep {
        let keep = keep.join(plan.seed.to_string());
        copy(folder.path(), &keep);
        plan.keep(&keep);
    }
    report
}

fn play<L: Lock>(plan: &Plan, setting: Setting<'_>, folder: &Path) -> BTreeMap<String, u64> {
    let arena = arena::start(plan);
    let register = Server::start();
    let recorder = Arc::new(Mutex::new(Recorder::new(folder, HARNESS, 0)));
    let tail = arena.record().map(|files| Tail::of(files, "soak:", Recorder::new(folder, "server", 0)));
    let begin = now() + span(plan.calm);
    let end = begin + span(plan.faults + plan.healing());
    let passwords = plan.hosted.then(|| Passwords::of(arena.servers(), folder));
    let role = Role {
        lock: setting.lock.to_owned(),
        plan: plan.clone(),
        name: String::new(),
        url: arena.url(),
        password: passwords.as_ref().map(|passwords| passwords.file().to_owned()),
        register: register.url(),
        folder: folder.to_owned(),
        faults: begin,
        end,
    };
    let lookout = Arc::new(Mutex::new(Lookout::over(arena, Recorder::new(folder, HARNESS, 2))));
    let over = Arc::new(AtomicBool::new(false));
    let watch = {
        let (lookout, over) = (Arc::downgrade(&lookout), Arc::clone(&over));
        std::thread::spawn(move || keep_watch(&lookout, || over.load(Ordering::SeqCst)))
    };
    let mut workers = Workers::start(role, setting.test, setting.beside);
    wait_until(begin, setting.is_over);
    let nemesis = Nemesis::new(&lookout, &mut workers, L::COMMANDS, Arc::clone(&recorder));
    let faults = nemesis.run(&plan.strikes(), setting.is_over);
    let note = |what| recorder.lock().expect("no writer panics").note(what);
    note(What::Healed);
    wait_until(end, setting.is_over);
    workers.wait(plan.patience * 4 + Duration::from_secs(20), setting.is_over);
    over.store(true, Ordering::SeqCst);
    watch.join().expect("the watch ends");
    if (setting.is_over)() {
        return faults;
    }
    for key in plan.keys() {
        let value: Option<u64> = register.ask(&format!("HGET {key} value"));
        note(What::Final { key, value: value.unwrap_or_default() });
    }
    for (thing, after) in leftovers(lock(&lookout).arena(), plan) {
        note(What::Left { thing, before: 0, after });
    }
    drop((tail, passwords));
    faults
}

/// What is left in the servers when all work has ended, after the time that a crash may cost.
fn leftovers(arena: &dyn Arena, plan: &Plan) -> [(String, u64); 2] {
    let end = now() + span(plan.lease() + Duration::from_secs(1));
    loop {
        let keys = arena.keys();
        let left = |thing: &str, is_left: &dyn Fn(&str, i64) -> bool| {
            let names: Vec<_> = keys.iter().filter(|(key, left)| is_left(key, **left)).map(|(key, _)| key).collect();
            (format!("{thing} {names:?}"), names.len() as u64)
        };
        let locks = left("locks in the server", &|key, _| key.starts_with("soak:"));
        let endless = left("keys without an end", &|_, left| left < 0);
        if locks.1 + endless.1 == 0 || now() > end {
            return [locks, endless];
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_until(end: u64, is_over: &dyn Fn() -> bool) {
    while now() < end && !is_over() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn append(operations: &[Operation], file: &Path) {
    let file = OpenOptions::new().create(true).append(true).open(file).expect("a file for the history");
    let mut file = BufWriter::new(file);
    for operation in operations {
        let line = serde_json::to_string(operation).expect("an operation is plain data");
        writeln!(file, "{line}").expect("room for the history");
    }
    file.flush().expect("room for the history");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder to keep the history in");
    for entry in std::fs::read_dir(from).expect("the history's folder") {
        let entry = entry.expect("a file of the history");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("room for the history");
    }
}
