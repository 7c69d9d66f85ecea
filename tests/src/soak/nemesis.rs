//! [`Nemesis`]: breaks things as planned, and repairs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::lookout::{Lookout, lock};
use super::strike::{Kind, Strike};
use super::workers::Workers;
use crate::proxy::{Direction, Fault, LineNumber, Met, Proxy};
use history::event::{now, span};
use history::{Recorder, What};

/// Breaks things in one round.
#[derive(Debug)]
pub struct Nemesis<'a> {
    lookout: Arc<Mutex<Lookout>>,
    /// The servers' own URLs.
    servers: Vec<String>,
    proxies: Vec<Arc<Proxy>>,
    workers: &'a mut Workers,
    commands: &'static [&'static str],
    recorder: Arc<Mutex<Recorder>>,
    pending: Vec<Pending>,
    planned: Vec<Planned>,
    /// The fault that the servers suffer now.
    suffering: Option<JoinHandle<()>>,
    /// Commands that may take as long as the server is stopped.
    talks: Vec<JoinHandle<()>>,
    counts: BTreeMap<String, u64>,
}

/// A fault to repair at `at`.
#[derive(Debug)]
struct Pending {
    at: u64,
    from: u64,
    kind: Kind,
    target: String,
    repair: Repair,
}

#[derive(Clone, Copy, Debug)]
enum Repair {
    GoOn(usize),
    Respawn(usize),
    Cut(usize, LineNumber),
    Nothing,
}

/// How long a connection may be missing after a fault hit it.
const SETTLES: Duration = Duration::from_millis(500);

/// A fault that waits for its command, and then lasts for `length`.
#[derive(Debug)]
struct Planned {
    met: Met,
    length: Duration,
    kind: Kind,
}

impl<'a> Nemesis<'a> {
    /// `commands` are the ones that faults may hit.
    pub fn new(
        lookout: &Arc<Mutex<Lookout>>,
        workers: &'a mut Workers,
        commands: &'static [&'static str],
        recorder: Arc<Mutex<Recorder>>,
    ) -> Self {
        let servers = lock(lookout).arena().servers();
        let proxies = lock(lookout).arena().proxies();
        let (pending, planned, talks, counts) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        let lookout = Arc::clone(lookout);
        Self {
            lookout,
            servers,
            proxies,
            workers,
            commands,
            recorder,
            pending,
            planned,
            suffering: None,
            talks,
            counts,
        }
    }

    /// Plays the strikes until the end or until `is_over`, then repairs everything. Returns how often it played each kind.
    pub fn run(mut self, strikes: &[Strike], is_over: &dyn Fn() -> bool) -> BTreeMap<String, u64> {
        let start = now();
        for strike in strikes {
            self.wait_until(start + span(strike.at), is_over);
            if is_over() {
                break;
            }
            if self.strike(strike) {
                *self.counts.entry(format!("{:?}", strike.kind)).or_default() += 1;
            }
        }
        for proxy in &self.proxies {
            proxy.forget_plans();
        }
        self.mend(u64::MAX);
        if let Some(suffering) = self.suffering {
            suffering.join().expect("the servers settle");
        }
        for talk in self.talks {
            let _ = talk.join();
        }
        self.counts
    }

    fn wait_until(&mut self, end: u64, is_over: &dyn Fn() -> bool) {
        while now() < end && !is_over() {
            self.mend(now());
            let next = self.pending.iter().map(|pending| pending.at).min().unwrap_or(end).min(end);
            let left = Duration::from_nanos(next.saturating_sub(now()));
            std::thread::sleep(left.clamp(Duration::from_micros(100), Duration::from_millis(50)));
        }
    }

    /// Makes the repairs that are due.
    fn mend(&mut self, due: u64) {
        self.note_met();
        let (mut mended, pending) = std::mem::take(&mut self.pending).into_iter().partition(|one| one.at <= due);
        self.pending = pending;
        let all: &mut Vec<Pending> = &mut mended;
        all.sort_by_key(|one| one.at);
        for one in mended {
            // Record the end before the repair: then the fault lasted at least as long as the history says, even after a kill in
            // between.
            self.note(&one);
            match one.repair {
                Repair::GoOn(worker) => self.workers.go_on(worker),
                Repair::Respawn(worker) => self.workers.respawn(worker),
                Repair::Cut(proxy, line) => self.proxies[proxy].cut_line(line),
                Repair::Nothing => {}
            }
        }
    }

    /// Records the planned faults that have hit their command. That may be long after they were planned, when a client sends the command.
    fn note_met(&mut self) {
        for Planned { met, length, kind } in std::mem::take(&mut self.planned) {
            match met.at() {
                None => self.planned.push(Planned { met, length, kind }),
                Some(from) => {
                    let (at, target) = (from + span(length + SETTLES), "wire".to_owned());
                    self.pending.push(Pending { at, from, kind, target, repair: Repair::Nothing });
                }
            }
        }
    }

    fn note(&self, one: &Pending) {
        let what = What::Fault { kind: format!("{:?}", one.kind), target: one.target.clone(), from: one.from };
        note(&self.recorder, now().min(one.at.max(one.from)), what);
    }

    fn later(&mut self, strike: &Strike, target: &str, repair: Repair) {
        let from = now();
        let at = from + span(strike.length);
        self.pending.push(Pending { at, from, kind: strike.kind, target: target.to_owned(), repair });
    }

    /// Plays the strike; `false` if that is impossible now.
    fn strike(&mut self, strike: &Strike) -> bool {
        let worker = self.workers.choose(strike.victim);
        let name = self.workers.name(worker);
        let pause = strike.length.as_millis();
        match strike.kind {
            Kind::StopWorker if self.workers.is_running(worker) => {
                self.workers.stop(worker);
                self.later(strike, &name, Repair::GoOn(worker));
            }
            Kind::KillWorker if self.workers.is_running(worker) => {
                lock(&self.recorder).note_of(now(), &name, What::Killed);
                self.workers.kill(worker);
                self.later(strike, &name, Repair::Respawn(worker));
            }
            Kind::KillClients => self.tell(strike, "CLIENT KILL TYPE normal", 0),
            Kind::KillSubscribers => self.tell(strike, "CLIENT KILL TYPE pubsub", 0),
            Kind::FlushScripts => self.tell(strike, "SCRIPT FLUSH", 0),
            Kind::FlushAll => self.tell(strike, "FLUSHALL", 0),
            Kind::PauseAll => self.tell(strike, &format!("CLIENT PAUSE {pause} ALL"), span(strike.length)),
            Kind::PauseWrites => self.tell(strike, &format!("CLIENT PAUSE {pause} WRITE"), span(strike.length)),
            Kind::SleepServer => self.tell(strike, &format!("DEBUG SLEEP {}", strike.length.as_secs_f32()), 0),
            Kind::DelayCommand => self.plan(strike, Fault::Delay(strike.length)),
            Kind::DelayReply => self.plan(strike, Fault::DelayReply(strike.length)),
            Kind::CutBeforeCommand => self.plan(strike, Fault::CutBeforeForward),
            Kind::CutAfterCommand => self.plan(strike, Fault::CutAfterForward),
            Kind::MuteFromReply => self.plan(strike, Fault::MuteFromReply),
            Kind::DeafLine => return self.swallow(strike, Direction::ToServer),
            Kind::MuteLine => return self.swallow(strike, Direction::ToClient),
            Kind::BlackHole => return self.swallow(strike, Direction::Both),
            Kind::ResetLine => {
                let Some((proxy, line)) = self.line(strike) else { return false };
                self.proxies[proxy].reset_line(line);
                self.later(strike, "wire", Repair::Nothing);
            }
            kind if kind.is_of_servers() => return self.torment(strike),
            _ => return false,
        }
        true
    }

    /// Plays a fault on the servers in a new thread, unless they still suffer from another one.
    fn torment(&mut self, strike: &Strike) -> bool {
        if self.suffering.as_ref().is_some_and(|suffering| !suffering.is_finished()) {
            return false;
        }
        if let Some(suffered) = self.suffering.take() {
            suffered.join().expect("the servers settle");
        }
        let (lookout, recorder, strike) = (Arc::clone(&self.lookout), Arc::clone(&self.recorder), strike.clone());
        self.suffering = Some(std::thread::spawn(move || {
            let from = now();
            let (target, over) = lock(&lookout).suffer(&strike);
            note(&recorder, over, What::Fault { kind: format!("{:?}", strike.kind), target, from });
        }));
        true
    }

    /// Plans a fault for the next of the `commands`, on any connection.
    fn plan(&mut self, strike: &Strike, fault: Fault) {
        let met = self.proxies[self.proxy(strike)].plan(self.commands[strike.victim % self.commands.len()], fault);
        self.planned.push(Planned { met, length: strike.length, kind: strike.kind });
    }

    /// The proxy; chosen independently of the command.
    fn proxy(&self, strike: &Strike) -> usize {
        (strike.victim / 64) % self.proxies.len()
    }

    fn line(&self, strike: &Strike) -> Option<(usize, LineNumber)> {
        let proxy = self.proxy(strike);
        let lines = self.proxies[proxy].lines();
        Some((proxy, *lines.get(strike.victim % lines.len().max(1))?))
    }

    fn swallow(&mut self, strike: &Strike, direction: Direction) -> bool {
        let Some((proxy, line)) = self.line(strike) else { return false };
        self.proxies[proxy].black_hole_line(line, direction);
        self.later(strike, "wire", Repair::Cut(proxy, line));
        true
    }

    /// Sends a command to a server in a new thread, because the server may be stopped. The effect lasts until `after` the reply.
    fn tell(&mut self, strike: &Strike, command: &str, after: u64) {
        let (kind, url) = (strike.kind, self.servers[strike.victim % self.servers.len()].clone());
        let (recorder, from, command) = (Arc::clone(&self.recorder), now(), command.to_owned());
        self.talks.retain(|talk| !talk.is_finished());
        self.talks.push(std::thread::spawn(move || {
            // A server that is killed meanwhile does not execute it, which does no harm.
            let _ = answered(url, &command);
            let what = What::Fault { kind: format!("{kind:?}"), target: "server".to_owned(), from };
            note(&recorder, now() + after, what);
        }));
    }
}

/// Sends a command and waits for the reply without a limit: a server that is stopped, or that pauses its clients, executes the command
/// later. If the server is killed, the connection ends.
fn answered(url: String, command: &str) -> redis::RedisResult<redis::Value> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let mut words = command.split(' ');
    redis::cmd(words.next().unwrap_or_default()).arg(words.collect::<Vec<_>>()).query(&mut connection)
}

fn note(recorder: &Mutex<Recorder>, at: u64, what: What) {
    lock(recorder).note_of(at, history::claims::HARNESS, what);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    /// Longer than the read timeout of a usual client.
    const STOPPED: Duration = Duration::from_secs(6);

    /// Otherwise the history would have the stall end before it begins.
    #[test]
    fn a_command_to_a_stopped_server_is_over_when_the_server_has_carried_it_out() {
        let server = Server::start();
        server.freeze();
        let url = server.url();
        let told = std::thread::spawn(move || answered(url, "PING").map(|_| now()));
        std::thread::sleep(STOPPED);
        let goes_on = now();
        server.thaw();
        assert!(told.join().unwrap().unwrap() >= goes_on);
    }
}
