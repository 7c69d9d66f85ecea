//! [`Network`]: the server, and the connections to it.
//!
//! A connection is a byte stream, as the client crate needs it. Messages arrive in order and late, or not at all: then the connection is
//! cut. Connections don't wait for each other, so one process's commands may overtake each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use fastrand::Rng;
use history::event::{LOSE_GRANT, LOSE_NEAR, LOSE_PUSH, What};
use history::{Event, Violation};
use server_model::{Client, ModelServer, Reply, take_command};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::host::Host;
use super::journal::Journal;
use super::record::Record;
use super::search::{self, Choice, Way};
use super::stall::Stall;
use super::time;

/// The start of a world, in microseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000_000;

/// The chances of events that hit single messages, and how long messages take at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions {
    pub(super) delay: Duration,
    /// The chance of a delay a hundred times as long.
    pub(super) slow: f64,
    pub(super) refused: f64,
    /// The connection is cut before a command is executed, and after.
    pub(super) cut_before: f64,
    pub(super) cut_after: f64,
    pub(super) push_lost: f64,
}

pub(super) struct Network {
    shared: Mutex<Shared>,
}

struct Shared {
    server: ModelServer,
    /// The speed of the server's clock, measured by the host's.
    rate: f64,
    random: Rng,
    conditions: Conditions,
    /// Each message takes half of it, whatever the conditions are.
    round_trip: Duration,
    wires: BTreeMap<Client, Wire>,
    frozen: Instant,
    parted: BTreeMap<Arc<str>, Instant>,
    record: Record,
    journal: Arc<Mutex<Journal>>,
    /// Its place among the servers of a quorum.
    number: usize,
}

struct Wire {
    process: Arc<str>,
    outbox: UnboundedSender<(Instant, Vec<u8>)>,
    tasks: [AbortHandle; 3],
    /// Replies and pushes are lost.
    is_deaf: bool,
    /// Whether a command has arrived since then. Without one the process can't have noticed.
    is_used: bool,
}

impl Network {
    pub(super) fn new(server: ModelServer, rate: f64, random: Rng) -> Arc<Self> {
        Self::with_journal(server, rate, random, (Arc::default(), 0))
    }

    /// Another server, which shares only the journal with the others.
    pub(super) fn beside(&self, server: ModelServer, rate: f64, random: Rng, number: usize) -> Arc<Self> {
        Self::with_journal(server, rate, random, (Arc::clone(&self.locked().journal), number))
    }

    fn with_journal(
        server: ModelServer,
        rate: f64,
        random: Rng,
        (journal, number): (Arc<Mutex<Journal>>, usize),
    ) -> Arc<Self> {
        let shared = Shared {
            server,
            rate,
            random,
            conditions: Conditions::default(),
            round_trip: Duration::ZERO,
            wires: BTreeMap::new(),
            frozen: Instant::now(),
            parted: BTreeMap::new(),
            record: Record::default(),
            journal,
            number,
        };
        Arc::new(Self { shared: Mutex::new(shared) })
    }

    fn locked(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    pub(super) fn host(self: &Arc<Self>, process: &str) -> Host {
        Host::new(Arc::clone(self), process)
    }

    pub(super) fn note(&self, process: &str, task: u32, what: What) {
        self.locked().journal().note(process, task, what);
    }

    pub(super) fn next_instant(&self) -> u64 {
        self.locked().journal().next_instant()
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        self.locked().journal().take_events()
    }

    pub(super) fn take_seen(&self) -> Vec<Violation> {
        self.locked().record.take_seen()
    }

    /// Adds a violation that was found elsewhere.
    pub(super) fn see(&self, violation: Violation) {
        self.locked().record.see(violation);
    }

    pub(super) fn set_conditions(&self, conditions: Conditions) {
        self.locked().conditions = conditions;
    }

    /// From now on the server is at this distance.
    pub(super) fn move_away(&self, round_trip: Duration) {
        self.locked().round_trip = round_trip;
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.locked().round_trip
    }

    /// Its place among the servers of a quorum.
    pub(super) fn number(&self) -> usize {
        self.locked().number
    }

    /// From now on this many servers decide together who owns a lock.
    pub(super) fn count_servers(&self, servers: usize) {
        self.locked().journal().count_servers(servers);
    }

    pub(super) fn server<T>(&self, change: impl FnOnce(&mut ModelServer, u64) -> T) -> T {
        let shared = &mut *self.locked();
        let now = shared.micros();
        let changed = change(&mut shared.server, now);
        shared.post_pushes(Instant::now());
        changed
    }

    /// Executes a command on a separate connection, as another client does.
    pub(super) fn execute(&self, words: &[&str]) {
        let command: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.server(|server, now| {
            let client = server.connect();
            server.execute(client, now, &command);
            server.disconnect(client);
        });
    }

    /// The server answers no command for this long.
    pub(super) fn freeze(&self, span: Duration) {
        self.locked().frozen = Instant::now() + span;
    }

    /// The server stalls inside scripts: before a command, with this chance, for at most `most`.
    pub(super) fn stall(&self, chance: f64, most: Duration) {
        let shared = &mut *self.locked();
        let (mut random, most) = (shared.random.fork(), u64::try_from(most.as_micros()).unwrap_or(u64::MAX));
        shared.server.set_pace(move || if random.f64() < chance { random.u64(..=most) } else { 0 });
    }

    /// Nothing passes between a process and the server for this long; then everything arrives.
    pub(super) fn part(&self, process: &str, span: Duration) {
        self.locked().parted.insert(process.into(), Instant::now() + span);
    }

    /// Ends the connections of one process, or all.
    pub(super) fn cut(&self, process: Option<&str>) {
        self.locked().cut(|wire| process.is_none_or(|process| *wire.process == *process));
    }

    /// The server loses its data.
    pub(super) fn forget(&self) {
        let shared = &mut *self.locked();
        shared.server.flush_all();
        shared.post_pushes(Instant::now());
        shared.record.forget();
        shared.journal().note("server", 0, What::Forgot);
    }

    /// From now on replies on the existing connections of a process are lost.
    pub(super) fn deafen(&self, process: &str) {
        for wire in self.locked().wires.values_mut().filter(|wire| *wire.process == *process) {
            (wire.is_deaf, wire.is_used) = (true, false);
        }
    }

    /// Ends the connections on which replies are still lost, and that their process has not used since.
    pub(super) fn cut_unused(&self) {
        self.locked().cut(|wire| wire.is_deaf && !wire.is_used);
    }

    /// Whether replies to a process are still lost.
    pub(super) fn is_deaf(&self, process: &str) -> bool {
        self.locked().wires.values().any(|wire| wire.is_deaf && *wire.process == *process)
    }

    pub(super) fn rolls(&self, chance: impl Fn(&Conditions) -> f64) -> bool {
        let shared = &mut *self.locked();
        shared.random.f64() < chance(&shared.conditions)
    }

    pub(super) async fn passable(&self, process: &str) {
        loop {
            let until = self.locked().parted.get(process).copied();
            match until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return,
            }
        }
    }

    async fn reachable(&self, process: &str) {
        loop {
            self.passable(process).await;
            let frozen = self.locked().frozen;
            if frozen <= Instant::now() {
                return;
            }
            sleep_until(frozen).await;
        }
    }

    pub(super) fn accept(self: &Arc<Self>, process: &Arc<str>, node: usize, stream: DuplexStream) {
        let (reader, writer) = tokio::io::split(stream);
        let (inbox, commands) = unbounded_channel();
        let (outbox, replies) = unbounded_channel();
        let mut shared = self.locked();
        let client = shared.server.connect_to(node);
        let tasks = [
            tokio::spawn(receive(Arc::clone(self), reader, inbox)).abort_handle(),
            tokio::spawn(execute(Arc::clone(self), Arc::clone(process), client, commands)).abort_handle(),
            tokio::spawn(send(Arc::clone(self), Arc::clone(process), writer, replies)).abort_handle(),
        ];
        shared
            .wires
            .insert(client, Wire { process: Arc::clone(process), outbox, tasks, is_deaf: false, is_used: false });
    }
}

async fn receive(network: Arc<Network>, mut reader: ReadHalf<DuplexStream>, inbox: UnboundedSender<Sent>) {
    let (mut buffer, mut last) = (BytesMut::new(), Instant::now());
    while matches!(reader.read_buf(&mut buffer).await, Ok(1..)) {
        while let Some(command) = take_command(&mut buffer) {
            // Messages of one connection stay in order.
            last = last.max(network.locked().arrival(Instant::now()));
            let _ = inbox.send((last, command));
        }
    }
}

/// A command, and when it arrives.
type Sent = (Instant, Vec<Vec<u8>>);

async fn execute(network: Arc<Network>, process: Arc<str>, client: Client, mut inbox: UnboundedReceiver<Sent>) {
    while let Some((at, command)) = inbox.recv().await {
        sleep_until(at).await;
        network.reachable(&process).await;
        let stall = network.locked().execute(client, &command);
        if let Some(stall) = stall {
            tokio::spawn(stall.note(Arc::clone(&network)));
        }
    }
    // The process has closed it.
    network.locked().hang_up(client);
}

async fn send(
    network: Arc<Network>,
    process: Arc<str>,
    mut writer: WriteHalf<DuplexStream>,
    mut outbox: UnboundedReceiver<(Instant, Vec<u8>)>,
) {
    while let Some((at, bytes)) = outbox.recv().await {
        sleep_until(at).await;
        network.passable(&process).await;
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap()
    }

    /// The server's clock.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "minutes")]
    fn micros(&self) -> u64 {
        EPOCH + (time::now().unwrap_or_default() as f64 * self.rate / 1000.0) as u64
    }

    fn rolls(&mut self, chance: f64) -> bool {
        self.random.f64() < chance
    }

    fn arrival(&mut self, leaves: Instant) -> Instant {
        let most = u64::try_from(self.conditions.delay.as_millis()).unwrap_or_default();
        let times = if self.rolls(self.conditions.slow) { 100 } else { 1 };
        leaves + self.round_trip / 2 + Duration::from_millis(self.random.u64(0..=most) * times) + search::delay()
    }

    /// Executes a command; returns how long the server stalled inside it, if it did.
    fn execute(&mut self, client: Client, command: &[Vec<u8>]) -> Option<Stall> {
        // If it is gone, this command arrived together with an earlier one at which the connection was cut.
        self.wires.get_mut(&client)?.is_used = true;
        let way = search::choose(Choice::Command);
        if self.rolls(self.conditions.cut_before) || way == Some(Way::CutBefore) {
            self.cut_one(client);
            return None;
        }
        let now = self.micros();
        let reply = self.server.execute(client, now, command);
        self.tell(client, command, &reply);
        let taken = self.server.taken();
        let stall = Stall::of(taken, self.rate);
        // Replies leave the server when the command ends.
        let leaves = stall.map_or_else(Instant::now, |stall| stall.ends);
        self.frozen = self.frozen.max(leaves);
        self.observe((now, now + taken), command);
        self.post_pushes(leaves);
        if let Some(Way::Crash | Way::Vanish) = way {
            self.end_process(client, way == Some(Way::Crash));
        } else if self.rolls(self.conditions.cut_after) || way == Some(Way::CutAfter) {
            self.cut_one(client);
        } else {
            self.post(client, &reply, leaves);
        }
        stall
    }

    /// `SEED=7 COMMANDS=1` prints each command, its sender, and the reply. A script shows as the beginning of its text.
    fn tell(&self, client: Client, command: &[Vec<u8>], reply: &Reply) {
        if std::env::var_os("COMMANDS").is_some() {
            let (at, process) = (time::now().unwrap_or_default() / 1000, &self.wires[&client].process);
            let words = command.iter().map(|word| String::from_utf8_lossy(word).chars().take(40).collect::<String>());
            eprintln!("{at:>12} {process} {client:?} {:?} -> {reply:?}", words.collect::<Vec<_>>());
        }
    }

    fn post_pushes(&mut self, leaves: Instant) {
        for (listener, push) in self.server.take_pushes() {
            if self.rolls(self.conditions.push_lost) || search::choose(Choice::Push) == Some(Way::Lost) {
                let (from, kind) = (time::now().unwrap_or_default(), loss_of(&push).to_owned());
                let target = self.wires.get(&listener).map_or("wire", |wire| &*wire.process).to_owned();
                self.journal().note(history::claims::HARNESS, 0, What::Fault { kind, target, from });
            } else {
                self.post(listener, &push, leaves);
            }
        }
    }

    fn post(&mut self, client: Client, reply: &Reply, leaves: Instant) {
        let arrival = self.arrival(leaves);
        if let Some(wire) = self.wires.get(&client).filter(|wire| !wire.is_deaf) {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            let _ = wire.outbox.send((arrival, bytes));
        }
    }

    /// The process of this connection is gone. Its host may or may not close its connections.
    fn end_process(&mut self, client: Client, is_noticed: bool) {
        let Some(process) = self.wires.get(&client).map(|wire| Arc::clone(&wire.process)) else { return };
        self.parted.insert(Arc::clone(&process), Instant::now() + Duration::from_hours(24));
        if is_noticed {
            self.cut(|wire| wire.process == process);
        }
        search::crash(&process);
    }

    fn cut_one(&mut self, client: Client) {
        let from = time::now().unwrap_or_default();
        self.journal().note(
            history::claims::HARNESS,
            0,
            What::Fault { kind: "Cut".into(), target: "wire".into(), from },
        );
        self.hang_up(client);
    }

    fn cut(&mut self, which: impl Fn(&Wire) -> bool) {
        let cut: Vec<_> = self.wires.iter().filter(|(_, wire)| which(wire)).map(|(client, _)| *client).collect();
        for client in cut {
            self.hang_up(client);
        }
    }

    fn hang_up(&mut self, client: Client) {
        self.server.disconnect(client);
        if let Some(wire) = self.wires.remove(&client) {
            wire.tasks.iter().for_each(AbortHandle::abort);
        }
    }

    /// Records what a command, which the server executed between these times, did to the locks' keys.
    fn observe(&mut self, (now, end): (u64, u64), command: &[Vec<u8>]) {
        self.record.on_read(self.server.take_largest_read());
        let snapshot = self.server.snapshot(now);
        let (wires, rate) = (&self.wires, self.rate);
        let is_connected = |process: &str| wires.values().any(|wire| *wire.process == *process);
        let changes = self.record.compare(snapshot, (now, end), command, is_connected, |micros| nanos_at(rate, micros));
        for (key, to) in changes {
            self.journal().note_change(self.number, key, to);
        }
    }
}

/// The history's word for the loss of a message.
fn loss_of(push: &Reply) -> &'static str {
    let Reply::Push(parts) = push else { return LOSE_PUSH };
    let Some(Reply::Bulk(text)) = parts.last() else { return LOSE_PUSH };
    let text = String::from_utf8_lossy(text);
    let mut words = text.split(' ');
    // A sharded grant begins with its node.
    match words.next().and_then(|word| if word == "from" { words.nth(1) } else { Some(word) }) {
        Some("grant") => LOSE_GRANT,
        Some("near") => LOSE_NEAR,
        _ => LOSE_PUSH,
    }
}

/// When the server's clock shows this instant, by our clock.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "minutes")]
fn nanos_at(rate: f64, micros: u64) -> u64 {
    (micros.saturating_sub(EPOCH) as f64 / rate * 1000.0) as u64
}
