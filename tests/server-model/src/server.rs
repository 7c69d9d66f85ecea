//! [`ModelServer`], and what observers see of it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Reply;
use crate::clock::{ScriptTime, millis};
use crate::cluster::slot_of;
use crate::data::Data;
use crate::keyspace::{Slot, Value};
use crate::scripts::Scripts;

/// One connection, as the server sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Client(pub(crate) u64);

/// One server.
pub struct ModelServer {
    /// Shared with the functions that scripts call, and with nobody else.
    data: Arc<Mutex<Data>>,
    pub(crate) scripts: Scripts,
    connected: u64,
}

/// A key, as an observer sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What is stored.
    pub value: Stored,
    /// The server time at which it ends, in microseconds since the epoch; `None`: never.
    pub expires_micros: Option<u64>,
}

/// A value, with what is no UTF-8 replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    /// A string.
    String(String),
    /// A list, from its head on.
    List(Vec<String>),
    /// The members of a sorted set, in their order.
    Sorted(Vec<String>),
}

impl ModelServer {
    /// Empty, with nobody connected.
    #[must_use]
    pub fn new() -> Self {
        let data = Arc::new(Mutex::default());
        Self { scripts: Scripts::new(&data), data, connected: 0 }
    }

    /// The most bytes of a text that a command has read at once since the last call.
    pub fn take_largest_read(&mut self) -> usize {
        self.data().largest_read.take()
    }

    /// A new connection.
    pub fn connect(&mut self) -> Client {
        self.connected += 1;
        Client(self.connected)
    }

    /// From now on these are the nodes of a cluster, by their places. The first has all slots.
    pub fn set_nodes(&mut self, nodes: usize) {
        self.data().cluster.set_nodes(nodes);
    }

    /// A new connection to one of the nodes.
    pub fn connect_to(&mut self, node: usize) -> Client {
        let client = self.connect();
        self.data().cluster.connect(client, node);
        client
    }

    /// From now on `to` is the master of a slot. Returns the node that was. It still has the listeners of the slot's sharded channels,
    /// until [`end_sharded`](Self::end_sharded): a message of the new master reaches them as well.
    pub fn move_slot(&mut self, slot: u16, to: usize) -> usize {
        self.data().cluster.move_slot(slot, to)
    }

    /// The node has heard that a slot has moved: its clients listen to the slot's sharded channels no more.
    pub fn end_sharded(&mut self, slot: u16, node: usize) {
        let Data { cluster, channels, .. } = &mut *self.data();
        channels.end_sharded(|channel| slot_of(channel) == slot, |client| cluster.node_of(client) == node);
    }

    /// The connection is gone, and its subscriptions with it.
    pub fn disconnect(&mut self, client: Client) {
        let mut data = self.data();
        data.channels.disconnect(client);
        data.tracking.disconnect(client);
        data.cluster.disconnect(client);
    }

    /// Executes one command at `now_micros`, in microseconds since the epoch, and returns its reply. What it tells others
    /// is in [`take_pushes`](Self::take_pushes).
    ///
    /// The reply to `SUBSCRIBE` and `UNSUBSCRIBE` is the confirmation of the first channel, a push; those of further
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

    /// The messages made since the last call, in order: for whom, and what.
    ///
    /// A server sends a client what the client's own command told it after the reply to that command.
    pub fn take_pushes(&mut self) -> Vec<(Client, Reply)> {
        self.data().channels.take_pushes()
    }

    /// How long the last command took, in microseconds. It is for the caller to have nothing else executed meanwhile, and
    /// to let the reply and the pushes out only then.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.data().clock.taken()
    }

    /// From now on the server takes this number of microseconds before each command of a script. Without this it takes none.
    pub fn set_pace(&mut self, pace: impl FnMut() -> u64 + Send + 'static) {
        self.data().clock.set_pace(Box::new(pace));
    }

    /// From now on scripts see the time in this way.
    pub fn set_script_time(&mut self, script_time: ScriptTime) {
        self.data().clock.set_script_time(script_time);
    }

    /// From now on there is a command of this name, `DELIFEQ` or `DELEX`, that deletes a text which it has compared. A newer server has one.
    pub fn set_delete(&mut self, name: &'static str) {
        self.data().delete = Some(name);
    }

    /// From now on the server process calls itself so.
    pub fn set_run_id(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.data().run_id);
    }

    /// How the server process calls itself.
    #[must_use]
    pub fn run_id(&self) -> String {
        self.data().run_id.clone()
    }

    /// Forgets all scripts: each `EVALSHA` is answered with `NOSCRIPT` until the next `EVAL`.
    pub fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// Forgets all keys.
    pub fn flush_all(&mut self) {
        self.data().flush();
    }

    /// From now on scripts run with every `from` in their text replaced by `to`, under the digest of the text as it was:
    /// a bug on purpose.
    pub fn patch(&mut self, from: &str, to: &str) {
        self.scripts.patch(from, to);
    }

    /// How many scripts ran so far with a text that a patch changed.
    #[must_use]
    pub fn patched(&self) -> usize {
        self.scripts.patched()
    }

    /// Every key that is there at `now_micros`, in the order of the keys.
    pub fn snapshot(&mut self, now_micros: u64) -> Vec<(String, Entry)> {
        let data = self.data();
        let there = data.keys.slots().filter(|(_, slot)| !slot.is_over(millis(now_micros)));
        there.map(|(key, slot)| (text(key), Entry::of(slot))).collect()
    }

    /// How far the scores are apart of two members that follow each other in a sorted set: the least distance. Only sets whose names
    /// end with `suffix` count. `None` when there are no two such members.
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
        // Nothing that can panic runs under this lock.
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
