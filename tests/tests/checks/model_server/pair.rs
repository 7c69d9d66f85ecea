//! [`Pair`]: a real server and the model, which get the same commands and must give the same replies.

use std::time::{Duration, Instant};

use server_model::{Client, Entry, ModelServer, Reply, Stored};
use tests::server::Server;

use crate::model_server::real::{Connection, words};
use crate::model_server::steps::{Known, PROCESSES, Step};

/// Send no command while a key has less time left than this, so that both sides execute it before or both after the key expires.
const MARGIN: Duration = Duration::from_millis(8);
const PAUSE: Duration = Duration::from_millis(35);
/// A history ends after this time, so that lengths that were far apart remain far apart.
const LONGEST: Duration = Duration::from_secs(2);
/// A number from here on is a server time in microseconds, or a fencing token, which is made from one.
const TIME: u64 = 1_000_000_000_000_000;
/// A number from here on is a time in milliseconds: the end of a shared lease.
const MILLIS: u64 = TIME / 1000;

/// Why a history is inconclusive, or what differs.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The machine was too slow, and a key expired while a command was under way; or the machine's clock went back; or the two differ
    /// where two shared leases end so close to each other that microseconds decide their order.
    Unclear,
    Different(String),
}

struct Side<T> {
    clients: Vec<T>,
    known: Known,
}

pub(crate) struct Pair {
    server: ModelServer,
    model: Side<Client>,
    real: Side<Connection>,
    started: Instant,
    /// The last time that the server reported, in microseconds.
    latest: u64,
    /// How far the times of the two may differ.
    slack: Slack,
    /// Whether the ends of two shared leases were closer than that.
    has_tie: bool,
}

/// The longest time that a command took so far.
#[derive(Default)]
struct Slack {
    micros: u64,
    /// By how many milliseconds the server's clock advanced.
    millis: u64,
}

/// The bounds of when the server executed a command.
#[derive(Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn micros(self) -> u64 {
        self.to - self.from
    }

    fn millis(self) -> u64 {
        self.to / 1000 - self.from / 1000
    }
}

impl Pair {
    pub(crate) fn new(server: &Server) -> Self {
        server.tell("FLUSHALL");
        server.tell("SCRIPT FLUSH");
        let mut model = ModelServer::new();
        let clients = (0..PROCESSES).map(|_| model.connect()).collect();
        let connections = (0..PROCESSES).map(|_| Connection::to(server)).collect();
        Self {
            server: model,
            model: Side { clients, known: Known::default() },
            real: Side { clients: connections, known: Known::default() },
            started: Instant::now(),
            latest: 0,
            slack: Slack::default(),
            has_tie: false,
        }
    }

    pub(crate) fn run(&mut self, history: &[Step]) -> Result<(), Failure> {
        match self.play(history) {
            Err(Failure::Different(_)) if self.has_tie => Err(Failure::Unclear),
            outcome => outcome,
        }
    }

    fn play(&mut self, history: &[Step]) -> Result<(), Failure> {
        for (index, step) in history.iter().enumerate() {
            self.step(index, step)?;
        }
        self.same_keys()
    }

    fn step(&mut self, index: usize, step: &Step) -> Result<(), Failure> {
        self.wait_for_certainty()?;
        let Some(command) = step.command(index, &self.real.known) else {
            std::thread::sleep(PAUSE);
            return Ok(());
        };
        let (span, real) = self.ask_real(step.process, bytes(command))?;
        let command = step.command(index, &self.model.known).unwrap_or_default();
        let model = self.server.execute(self.model.clients[step.process], span.from, &bytes(command));
        self.is_clear(span)?;
        let apart = u32::try_from(self.slack.millis.max(span.millis()) + 1).unwrap_or(u32::MAX);
        self.has_tie |= self.server.least_gap(":shared").is_some_and(|gap| gap <= f64::from(apart));
        let is_left = |path: &[usize]| step.is_left(path, &model);
        let what = || format!("step {index}, {step:?}");
        self.same(&model, &real, span, &mut Vec::new(), &is_left)
            .then_some(())
            .ok_or_else(|| differ(&what(), &shown(&model), &shown(&real)))?;
        step.learn(&model, &mut self.model.known);
        step.learn(&real, &mut self.real.known);
        self.widen(span);
        let model = self.server.take_pushes();
        for (index, client) in self.model.clients.iter().enumerate() {
            let model = model.iter().filter(|(to, _)| to == client).map(|(_, push)| push.clone()).collect();
            let (model, real) = (Reply::Array(model), Reply::Array(self.real.clients[index].take_pushes()));
            if !self.same(&model, &real, span, &mut Vec::new(), &|_| false) {
                return Err(differ(&format!("pushes to {index} after {}", what()), &shown(&model), &shown(&real)));
            }
        }
        Ok(())
    }

    /// Executes a command on the server, and reads its clock before and after.
    fn ask_real(&mut self, process: usize, command: Vec<Vec<u8>>) -> Result<(Span, Reply), Failure> {
        let time = || words(&["TIME"]);
        let mut replies = self.real.clients[process].ask(&[time(), command, time()]);
        let span = Span { from: self.read_clock(&replies[0])?, to: self.read_clock(&replies[2])? };
        Ok((span, replies.swap_remove(1)))
    }

    /// The time on the server's clock.
    fn ask_clock(&mut self) -> Result<u64, Failure> {
        let reply = self.real.clients[0].ask(&[words(&["TIME"])]).swap_remove(0);
        self.read_clock(&reply)
    }

    /// If the clock was set back, keys live longer than the model can know.
    fn read_clock(&mut self, time: &Reply) -> Result<u64, Failure> {
        let now = micros(time);
        if now < self.latest {
            return Err(Failure::Unclear);
        }
        self.latest = now;
        Ok(now)
    }

    /// Sleeps until no key is about to expire.
    fn wait_for_certainty(&mut self) -> Result<(), Failure> {
        loop {
            let now = self.ask_clock()?;
            self.real.known.micros = now;
            self.model.known.micros = now;
            let soon = now + u64::try_from(MARGIN.as_micros()).unwrap();
            let end = self.ends(now).filter(|end| *end < soon).max();
            let Some(end) = end else { return Ok(()) };
            std::thread::sleep(Duration::from_micros(end - now));
        }
    }

    /// The latest ends of the keys and shared leases that may still exist at `now`.
    fn ends(&mut self, now: u64) -> impl Iterator<Item = u64> {
        let slack = 1000 * (self.slack.millis + 1);
        let entries = self.server.snapshot(now.saturating_sub(slack));
        // The score of a shared lease is its end in milliseconds.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let leases = self.server.scores(":shared").into_iter().map(|end| (end * 1000.0) as u64);
        entries
            .into_iter()
            .filter_map(|(_, entry)| entry.expires_micros)
            .chain(leases)
            .map(move |end| end + slack)
            .filter(move |end| *end > now)
    }

    fn is_clear(&mut self, span: Span) -> Result<(), Failure> {
        let slack = 1000 * (self.slack.millis + 1);
        let ended = self.ends(span.from).any(|end| end <= span.to + 2 * slack);
        if ended || self.started.elapsed() > LONGEST { Err(Failure::Unclear) } else { Ok(()) }
    }

    fn widen(&mut self, span: Span) {
        self.slack.micros = self.slack.micros.max(span.micros());
        self.slack.millis = self.slack.millis.max(span.millis());
    }

    fn same_keys(&mut self) -> Result<(), Failure> {
        self.wait_for_certainty()?;
        let from = self.ask_clock()?;
        let (_, Reply::Array(names)) = self.ask_real(0, words(&["KEYS", "*"]))? else { panic!("no list of keys") };
        let mut names: Vec<String> = names.iter().map(text).collect();
        names.sort();
        let mut real = Vec::new();
        for name in names {
            real.extend(self.real_entry(&name)?.map(|entry| (name, entry)));
        }
        let now = self.ask_clock()?;
        // A key that expired while the keys were read proves nothing.
        self.is_clear(Span { from, to: now })?;
        let model = self.server.snapshot(now);
        let close = |model: Option<u64>, real: Option<u64>| match (model, real) {
            (Some(model), Some(real)) => model.abs_diff(real) <= 1000 * (self.slack.millis + 1),
            (model, real) => model == real,
        };
        let same = |model: &(String, Entry), real: &(String, Entry)| {
            model.0 == real.0
                && close(model.1.expires_micros, real.1.expires_micros)
                && match (&model.1.value, &real.1.value) {
                    (Stored::String(model), Stored::String(real)) => self.same_text(model, real, 0),
                    (model, real) => model == real,
                }
        };
        if model.len() == real.len() && model.iter().zip(&real).all(|(model, real)| same(model, real)) {
            return Ok(());
        }
        Err(differ("what is left", &format!("{model:?}"), &format!("{real:?}")))
    }

    /// The server's entry of this name; `None` if the key has expired since it was listed.
    fn real_entry(&mut self, name: &str) -> Result<Option<Entry>, Failure> {
        let (_, kind) = self.ask_real(0, words(&["TYPE", name]))?;
        let value = if kind == Reply::Simple("list".to_owned()) {
            let (_, Reply::Array(items)) = self.ask_real(0, words(&["LRANGE", name, "0", "-1"]))? else {
                panic!("no list")
            };
            Stored::List(items.iter().map(text).collect())
        } else if kind == Reply::Simple("zset".to_owned()) {
            let (_, Reply::Array(items)) = self.ask_real(0, words(&["ZRANGE", name, "0", "-1"]))? else {
                panic!("no sorted set")
            };
            Stored::Sorted(items.iter().map(text).collect())
        } else {
            match self.ask_real(0, words(&["GET", name]))?.1 {
                Reply::Nil => return Ok(None),
                value => Stored::String(text(&value)),
            }
        };
        let (span, Reply::Integer(left)) = self.ask_real(0, words(&["PTTL", name]))? else { panic!("no time left") };
        self.widen(span);
        let expires_micros = u64::try_from(left).ok().map(|left| (span.from / 1000 + left) * 1000);
        Ok(Some(Entry { value, expires_micros }))
    }

    /// Compares two parts of a reply; `path` is their place in it.
    fn same(
        &self,
        model: &Reply,
        real: &Reply,
        span: Span,
        path: &mut Vec<usize>,
        is_left: &impl Fn(&[usize]) -> bool,
    ) -> bool {
        match (model, real) {
            (Reply::Array(model), Reply::Array(real)) | (Reply::Push(model), Reply::Push(real)) => {
                let same = |(index, (model, real)): (usize, (&Reply, &Reply))| {
                    path.push(index);
                    let same = self.same(model, real, span, path, is_left);
                    path.pop();
                    same
                };
                model.len() == real.len() && model.iter().zip(real).enumerate().all(same)
            }
            (Reply::Integer(model), Reply::Integer(real)) if is_left(path) && *model >= 0 && *real >= 0 => {
                // A hand-off rounds up to whole milliseconds, so a difference of a microsecond may become one of a millisecond. A lease in
                // its last millisecond has zero left.
                model.abs_diff(*real) <= self.slack.millis + span.millis() + 1
            }
            (Reply::Integer(model), Reply::Integer(real)) => {
                self.same_text(&model.to_string(), &real.to_string(), span.micros())
            }
            (Reply::Error(model), Reply::Error(real)) => {
                model == real || in_words_of_valkey(model) == real.replace("Valkey command", "command")
            }
            (Reply::Bulk(_), Reply::Bulk(_)) => self.same_text(&text(model), &text(real), span.micros()),
            (model, real) => model == real,
        }
    }

    /// Compares word by word; times may differ a little.
    fn same_text(&self, model: &str, real: &str, micros: u64) -> bool {
        let time = |word: &str| word.parse::<u64>().ok().filter(|number| *number > MILLIS);
        let same = |(model, real): (&str, &str)| match (time(model), time(real)) {
            (Some(model), Some(real)) if model > TIME => real.abs_diff(model) <= self.slack.micros + micros,
            // A difference of a microsecond may become one of a millisecond.
            (Some(model), Some(real)) => real.abs_diff(model) <= (self.slack.micros + micros) / 1000 + 1,
            _ => model == real,
        };
        let (model, real) = (model.split(' '), real.split(' '));
        model.clone().count() == real.clone().count() && model.zip(real).all(same)
    }
}

fn differ(what: &str, model: &str, real: &str) -> Failure {
    Failure::Different(format!("{what}\n model: {model}\n real:  {real}"))
}

/// A reply as it is on the wire.
fn shown(reply: &Reply) -> String {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    String::from_utf8_lossy(&bytes).replace("\r\n", " ")
}

/// The text that Valkey has for an error of Redis: without advice, Redis's name and the script's digest.
fn in_words_of_valkey(error: &str) -> String {
    let error = error.trim_end_matches(" Please use EVAL.").replace("Redis command", "command");
    match error.split_once(" script: ").and_then(|(what, rest)| Some((what, rest.split_once(", on ")?.1))) {
        Some((what, place)) => format!("{what} script: on {place}"),
        None => error,
    }
}

fn bytes(command: Vec<String>) -> Vec<Vec<u8>> {
    command.into_iter().map(String::into_bytes).collect()
}

fn text(reply: &Reply) -> String {
    let Reply::Bulk(bytes) = reply else { panic!("{reply:?} is no text") };
    String::from_utf8_lossy(bytes).into_owned()
}

fn micros(time: &Reply) -> u64 {
    let Reply::Array(parts) = time else { panic!("{time:?} is no time") };
    let part = |index: usize| text(&parts[index]).parse::<u64>().unwrap();
    part(0) * 1_000_000 + part(1)
}
