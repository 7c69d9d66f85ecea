//! [`Nemesis`]: breaks things as planned, and mends them.

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

/// Whoever breaks things in one round.
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
    /// What happens to the servers right now.
    suffering: Option<JoinHandle<()>>,
    /// Commands to the server that may take as long as it is stopped.
    talks: Vec<JoinHandle<()>>,
    counts: BTreeMap<String, u64>,
}

/// Something that is broken until `at`.
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

/// For how long a connection may be missed after a fault that it met.
const SETTLES: Duration = Duration::from_millis(500);

/// A fault that waits for its command, and is in force for `length` from then on.
#[derive(Debug)]
struct Planned {
    met: Met,
    length: Duration,
    kind: Kind,
}

impl<'a> Nemesis<'a> {
    /// For one round; `commands` are those whose faults count.
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

    /// Strikes as planned unless it `is_over` before, then mends everything. Returns how often it did what.
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

    /// Mends what is due.
    fn mend(&mut self, due: u64) {
        self.note_met();
        let (mut mended, pending) = std::mem::take(&mut self.pending).into_iter().partition(|one| one.at <= due);
        self.pending = pending;
        let all: &mut Vec<Pending> = &mut mended;
        all.sort_by_key(|one| one.at);
        for one in mended {
            // Before, so that the fault was in force for as long as the history says, and where it matters (a kill in
            // between) no shorter.
            self.note(&one);
            match one.repair {
                Repair::GoOn(worker) => self.workers.go_on(worker),
                Repair::Respawn(worker) => self.workers.respawn(worker),
                Repair::Cut(proxy, line) => self.proxies[proxy].cut_line(line),
                Repair::Nothing => {}
            }
        }
    }

    /// Notes the planned faults that have met their command. That may be long after they were planned: nobody need send the command.
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

    /// Does it, unless it can't be done now.
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

    /// Has something happen to the servers, in a thread of its own, unless they suffer from something else.
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

    /// Hits the next command that counts, on whatever connection it comes.
    fn plan(&mut self, strike: &Strike, fault: Fault) {
        let met = self.proxies[self.proxy(strike)].plan(self.commands[strike.victim % self.commands.len()], fault);
        self.planned.push(Planned { met, length: strike.length, kind: strike.kind });
    }

    /// Another choice than that of the command.
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

    /// Has a server do something, in a thread of its own: it may be stopped. Its effect lasts `after` its answer.
    fn tell(&mut self, strike: &Strike, command: &str, after: u64) {
        let (kind, url) = (strike.kind, self.servers[strike.victim % self.servers.len()].clone());
        let (recorder, from, command) = (Arc::clone(&self.recorder), now(), command.to_owned());
        self.talks.retain(|talk| !talk.is_finished());
        self.talks.push(std::thread::spawn(move || {
            // A server that is killed meanwhile does not do it: no harm.
            let _ = answered(url, &command);
            let what = What::Fault { kind: format!("{kind:?}"), target: "server".to_owned(), from };
            note(&recorder, now() + after, what);
        }));
    }
}

/// Has a server carry out a command. It waits for the answer without a limit: a server that is stopped, or that lets its clients wait,
/// carries out the command later. A killed server ends the connection.
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

    /// A client with a read timeout of some seconds gives up before.
    const STOPPED: Duration = Duration::from_secs(6);

    /// Else the history says that a stall is over which is still to come.
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
