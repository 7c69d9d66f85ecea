//! [`Cell`]: one lock under one fault: a server, processes, what happens to them, and the checker's findings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use history::checks::judge;
use history::claims::HARNESS;
use history::event::{Change, wall_is_ahead};
use history::timeline::draw;
use history::{Bounds, History, Recorder, What};
use tests::aof::{self, Tail};
use tests::proxy::{Fault as WireFault, Proxy};
use tests::server::Server;
use tests::soak::worker::watch;

use crate::fault::Fault;
use crate::hall::Plate;
use crate::part::{Cue, Part};
use crate::published::e_timestamp::time_of;
use crate::reel::Reel;
use crate::verdict::Promise;

mod actor;
mod scene;

use actor::Actor;
use scene::Scene;

/// What was seen of one lock under one fault.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The promises that were broken.
    pub broken: BTreeMap<Promise, Finding>,
    /// A stretch of the first take that broke no promise.
    pub kept: Option<Reel>,
    /// How often the fault hit.
    pub hits: usize,
}

/// How a promise was broken: the stretch of history that shows it, drawn and step by step.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the sentence above says it")]
pub struct Finding {
    pub drawn: String,
    pub reel: Reel,
}

impl Cell {
    /// Adds the results of another take.
    pub(crate) fn add(&mut self, other: Self) {
        self.hits += other.hits;
        for (promise, finding) in other.broken {
            self.broken.entry(promise).or_insert(finding);
        }
        self.kept = self.kept.take().or(other.kept);
    }
}

/// How many locks are contended at once, each by its own victim and the same two others.
const SCENES: usize = 2;
const OTHERS: usize = 2;
/// What a busy machine may add to any time.
const NOISE: Duration = Duration::from_millis(250);
/// A process that has not ended by then never does.
const END: Duration = Duration::from_secs(20);

/// Plays a cell once. The seed and the fault decide what happens and when, whatever the lock. `test` is the test of this binary
/// that serves its processes; `None` when its `main` does.
pub(crate) fn play(plate: &Plate, fault: Fault, seed: u64, test: Option<&'static str>) -> Cell {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let over = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (mut recorder, over) = (Recorder::new(folder.path(), HARNESS, 1), Arc::clone(&over));
        thread::spawn(move || watch(&mut recorder, |_| over.load(Ordering::SeqCst)))
    };
    let hits = perform(plate, fault, seed, test, folder.path());
    over.store(true, Ordering::SeqCst);
    watcher.join().expect("the watcher ends");
    let history = read(plate, folder.path());
    let broken = judged(plate, fault, &history);
    let kept = broken.is_empty().then(|| Reel::kept(&history, fault));
    Cell { broken, kept, hits }
}

fn perform(plate: &Plate, fault: Fault, seed: u64, test: Option<&'static str>, folder: &Path) -> usize {
    let server = Server::with(&aof::OPTIONS);
    let tail = Tail::of(server.folder(), "museum:", Recorder::new(folder, "server", 0));
    let mut recorder = Recorder::new(folder, HARNESS, 0);
    let mut random = Rng::with_seed(seed);
    let keys: Vec<_> = (0..SCENES).map(|number| format!("museum:{number}")).collect();
    let mut part = |name: String, url: String, keys: &[String], victim: Option<usize>| Part {
        plate: plate.name.to_owned(),
        fault,
        is_victim: victim.is_some(),
        name,
        url,
        folder: folder.to_owned(),
        keys: keys.to_vec(),
        seed: random.u64(..),
        ahead: victim.map_or(0, |victim| fault.ahead(victim)),
    };
    let others: Vec<_> = (0..OTHERS).map(|number| part(format!("other{number}"), server.url(), &keys, None)).collect();
    let scenes = (0..).zip(&keys).map(|(number, key)| {
        let proxy = Proxy::unrecorded(&server);
        let part = part(format!("victim{number}"), proxy.url(), std::slice::from_ref(key), Some(number));
        let recorder = Recorder::new(folder, HARNESS, 2 + u32::try_from(number).unwrap_or_default());
        Scene { plate, server: &server, proxy, fault, number, seed: part.seed, part, recorder }
    });
    let mut scenes: Vec<_> = scenes.collect();
    for scene in &scenes {
        scene.prepare();
    }
    // Spawned here, and not in the scenes' threads: a process ends with the thread that started it.
    let mut others: Vec<_> = others.iter().map(|part| Actor::start(part, test)).collect();
    let mut victims: Vec<_> = scenes.iter().map(|scene| Actor::start(&scene.part, test)).collect();
    let hits = thread::scope(|threads| {
        let (ready, all_ready) = channel();
        let played = scenes.iter_mut().zip(&mut victims).map(|(scene, victim)| {
            let ready = ready.clone();
            threads.spawn(move || scene.play(victim, ready))
        });
        let played: Vec<_> = played.collect();
        drop(ready);
        // Ends when the last of them is ready, or has failed.
        while all_ready.recv().is_ok() {}
        Cue::Enter.give(folder);
        thread::sleep(fault.act());
        played.into_iter().filter_map(|scene| scene.join().ok()).filter(|hit| *hit).count()
    });
    recorder.note(What::Healed);
    Cue::Over.give(folder);
    let end = Instant::now() + END;
    for actor in others.iter_mut().chain(&mut victims) {
        actor.wait_until(end);
    }
    drop(tail);
    hits
}

/// The history. If a lease's end is in the value, it is added to the server's record.
fn read(plate: &Plate, folder: &Path) -> History {
    let history = History::read(folder);
    if !plate.ends_in_value {
        return history;
    }
    let mut events = history.events;
    for event in &mut events {
        if let What::Changed { to: Change::Owned { token, until, .. }, .. } = &mut event.what {
            let time = u64::try_from(time_of(token)).unwrap_or_default();
            *until = time.saturating_mul(1_000_000).saturating_sub(wall_is_ahead());
        }
    }
    History::of(events)
}

fn judged(plate: &Plate, fault: Fault, history: &History) -> BTreeMap<Promise, Finding> {
    let (tells, queues) = (plate.tells, plate.queues);
    let bounds = Bounds {
        lease: fault.lease(),
        noise: NOISE,
        round_trip: Duration::ZERO,
        answer: if tells { Duration::from_millis(500) } else { Duration::ZERO },
        forgetful: false,
        tells,
        queues,
        splits: false,
        linger: Duration::ZERO,
    };
    // Of several violations, the first shows how it began.
    let mut violations = judge(history, &bounds);
    violations.sort_by_key(|violation| violation.range);
    let mut broken = BTreeMap::new();
    for violation in violations {
        let promise = Promise::broken_by(&violation, history);
        let finding = || Finding { drawn: draw(history, &violation), reel: Reel::of(history, &violation) };
        broken.entry(promise).or_insert_with(finding);
    }
    broken
}
