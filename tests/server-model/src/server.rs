//! [`ModelServer`], and its state as observers see it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Reply;
use crate::clock::{ScriptTime, millis};
use crate::cluster::slot_of;
use crate::data::Data;
use crate::keyspace::{Slot, Value};
use crate::scripts::Scripts;

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Client(pub(crate) u64);

/// A model server.
pub struct ModelServer {
    /// Shared only with the functions that scripts call.
    data: Arc<Mutex<Data>>,
    pub(crate) scripts: Scripts,
    connected: u64,
}

/// The entry of a key, as an observer sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The value.
    pub value: Stored,
    /// When it expires, in microseconds of server time since the epoch; `None`: never.
    pub expires_micros: Option<u64>,
}

/// A value; bytes that are no UTF-8 are replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    /// A string.
    String(String),
    /// A list, from its head.
    List(Vec<String>),
    /// The members of a sorted set, in order.
    Sorted(Vec<String>),
}

impl ModelServer {
    /// An empty server without clients.
    #[must_use]
    pub fn new() -> Self {
        let data = Arc::new(Mutex::default());
        Self { scripts: Scripts::new(&data), data, connected: 0 }
    }

    /// The largest number of bytes of a string that a command has read since the last call.
    pub fn take_largest_read(&mut self) -> usize {
        self.data().largest_read.take()
    }

    /// A new connection.
    pub fn connect(&mut self) -> Client {
        self.connected += 1;
        Client(self.connected)
    }

    /// Makes this a cluster of this many nodes. The first one has all slots.
    pub fn set_nodes(&mut self, nodes: usize) {
        self.data().cluster.set_nodes(nodes);
    }

    /// A new connection to one of the nodes.
    pub fn connect_to(&mut self, node: usize) -> Client {
        let client = self.connect();
        self.data().cluster.connect(client, node);
        client
    }

    /// Makes `to` the master of a slot, and returns the node that was. The old node keeps the subscribers of the slot's sharded channels
    /// until [`end_sharded`](Self::end_sharded), and messages of the new master reach them, too.
    pub fn move_slot(&mut self, slot: u16, to: usize) -> usize {
        self.data().cluster.move_slot(slot, to)
    }

    /// The node has learned that a slot has moved: ends its clients' subscriptions to the slot's sharded channels.
    pub fn end_sharded(&mut self, slot: u16, node: usize) {
        let Data { cluster, channels, .. } = &mut *self.data();
        channels.end_sharded(|channel| slot_of(channel) == slot, |client| cluster.node_of(client) == node);
    }

    /// Closes a connection and ends its subscriptions.
    pub fn disconnect(&mut self, client: Client) {
        let mut data = self.data();
        data.channels.disconnect(client);
        data.tracking.disconnect(client);
        data.cluster.disconnect(client);
    }

    /// Executes a command at `now_micros`, in microseconds since the epoch, and returns its reply. The messages to other
    /// clients are in [`take_pushes`](Self::take_pushes).
    ///
    /// The reply to `SUBSCRIBE` and `UNSUBSCRIBE` is the confirmation of the first channel, a push; the confirmations of more
    /// channels are among the pushes.
    pub fn execute(&mut self, client: Client, now_micros: u64, command: &[Vec<u8>]) -> Reply {
        let mut data = self.data();
        data.begin(now_micros);
        data.tracking.begin(client);
        data.cluster.current = data.cluster.node_of(client);
        drop(data);
        let Some((name, arguments)) = command.split_first() else {
            return Reply::error("ERR unknown command '', with args beginning with: ");
        };
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let reply = self.dispatch(client, name, &arguments);
        self.data().tracking.end();
        reply
    }

    /// The pushes since the last call, in order, with their clients.
    ///
    /// If a client's own command makes a push for the client, a server sends it after the reply to that command.
    pub fn take_pushes(&mut self) -> Vec<(Client, Reply)> {
        self.data().channels.take_pushes()
    }

    /// How long the last command took, in microseconds. The caller must execute nothing else during that time, and deliver the
    /// reply and the pushes only after it.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.data().clock.taken()
    }

    /// Makes the server take this many microseconds before each command of a script, instead of none.
    pub fn set_pace(&mut self, pace: impl FnMut() -> u64 + Send + 'static) {
        self.data().clock.set_pace(Box::new(pace));
    }

    /// Sets which time scripts see.
    pub fn set_script_time(&mut self, script_time: ScriptTime) {
        self.data().clock.set_script_time(script_time);
    }

    /// Adds a command that compares and deletes, `DELIFEQ` or `DELEX`, which newer servers have.
    pub fn set_delete(&mut self, name: &'static str) {
        self.data().delete = Some(name);
    }

    /// Sets the run id of the server process.
    pub fn set_run_id(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.data().run_id);
    }

    /// The run id of the server process.
    #[must_use]
    pub fn run_id(&self) -> String {
        self.data().run_id.clone()
    }

    /// Removes all scripts: the reply to each `EVALSHA` is `NOSCRIPT` until the next `EVAL`.
    pub fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// Removes all keys.
    pub fn flush_all(&mut self) {
        self.data().flush();
    }

    /// Seeds a bug: from now on scripts run with every `from` in their text replaced by `to`, under the digest of the original
    /// text.
    pub fn patch(&mut self, from: &str, to: &str) {
        self.scripts.patch(from, to);
    }

    /// How many runs of scripts used a text that a patch changed.
    #[must_use]
    pub fn patched(&self) -> usize {
        self.scripts.patched()
    }

    /// All entries at `now_micros`, sorted by key.
    pub fn snapshot(&mut self, now_micros: u64) -> Vec<(String, Entry)> {
        let data = self.data();
        let there = data.keys.slots().filter(|(_, slot)| !slot.is_over(millis(now_micros)));
        there.map(|(key, slot)| (text(key), Entry::of(slot))).collect()
    }

    /// The least distance between the scores of two neighbours in a sorted set whose name ends with `suffix`. `None` if there are no two
    /// such members.
    #[must_use]
    pub fn least_gap(&self, suffix: &str) -> Option<f64> {
        let data = self.data();
        let gaps = data.keys.slots().filter(|(key, _)| key.ends_with(suffix.as_bytes())).filter_map(|(_, slot)| {
            match &slot.value {
                Value::Sorted(sorted) => sorted.least_gap(),
                _ => None,
            }
        });
        gaps.min_by(f64::total_cmp)
    }

    /// The scores in all sorted sets whose names end with `suffix`.
    #[must_use]
    pub fn scores(&self, suffix: &str) -> Vec<f64> {
        let data = self.data();
        let sets = data.keys.slots().filter(|(key, _)| key.ends_with(suffix.as_bytes()));
        sets.filter_map(|(_, slot)| if let Value::Sorted(sorted) = &slot.value { Some(sorted.scores()) } else { None })
            .flatten()
            .collect()
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Data> {
        // No code that can panic runs while this mutex is locked.
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ModelServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("connected", &self.connected).finish_non_exhaustive()
    }
}

impl Entry {
    fn of(slot: &Slot) -> Self {
        let value = match &slot.value {
            Value::Text(value) => Stored::String(text(value)),
            Value::List(list) => Stored::List(list.iter().map(|item| text(item)).collect()),
            Value::Sorted(sorted) => Stored::Sorted(sorted.members().map(text).collect()),
        };
        let expires_micros = slot.end().map(|end| u64::try_from(end).unwrap_or_default().saturating_mul(1000));
        Self { value, expires_micros }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
