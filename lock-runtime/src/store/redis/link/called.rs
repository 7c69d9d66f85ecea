//! [`Outgoing`]: a command. [`Called`]: a reply, and a command that waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Cmd, Value};

use super::super::hash_slot::slot_of;
use super::call::arming;
use super::{Channel, Link, Live};
use crate::clock::Moment;

/// A command, as it goes out on a connection.
pub(in super::super) struct Outgoing {
    pub(super) command: Cmd,
    /// Whether the server is to tell when somebody else changes what the command reads.
    pub(in super::super) arms: bool,
    /// The command may wait in the queue of a lock in this slot. In a cluster the connection hears the slot's channel by then.
    pub(super) listens: Option<u16>,
}

impl From<Cmd> for Outgoing {
    fn from(command: Cmd) -> Self {
        Self { command, arms: false, listens: None }
    }
}

impl Outgoing {
    /// The command, which arms alarms.
    pub(in super::super) fn arming(command: Cmd, arms: bool) -> Self {
        Self { arms, ..Self::from(command) }
    }

    /// The command, which may wait in the queue of `key`.
    pub(in super::super) fn waiting(command: Cmd, key: Option<&str>) -> Self {
        Self { listens: key.map(slot_of), ..Self::from(command) }
    }

    /// The command that goes in front, in the same piece.
    pub(super) fn first(&self, live: &Live, channel: Option<&Channel>) -> Option<Cmd> {
        if self.arms && live.has_alarms {
            return Some(arming());
        }
        let channel = channel.filter(|channel| channel.is_of_callers())?;
        live.shard.as_ref()?.subscription(self.listens?, channel)
    }

    /// Takes in the answer to the command in front. Its refusal is no failure of the command behind it.
    pub(super) fn on_first(&self, live: &Live, answer: Option<&Value>) {
        if let (Some(slot), Some(shard)) = (self.listens, &live.shard) {
            shard.on_subscribed(slot, answer);
        }
    }
}

/// Counts commands while they are on their way.
pub(in super::super) struct InFlight<'a>(&'a AtomicUsize, usize);

impl<'a> InFlight<'a> {
    pub(in super::super) fn new(counter: &'a AtomicUsize, count: usize) -> Self {
        counter.fetch_add(count, Ordering::Relaxed);
        Self(counter, count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A reply.
pub(in super::super) struct Called {
    pub(in super::super) value: Value,
    /// The instant before the command was sent.
    pub(in super::super) sent: Moment,
    /// The command was sent before, and may have taken effect then.
    pub(in super::super) repeated: bool,
    /// The connection on which the reply came.
    pub(in super::super) live: Live,
    pub(in super::super) link: Arc<Link>,
}

impl Called {
    pub(in super::super) fn take_value(&mut self) -> Value {
        std::mem::replace(&mut self.value, Value::Nil)
    }

    /// The replies to several commands.
    pub(in super::super) fn take_values(&mut self) -> Vec<Value> {
        match self.take_value() {
            Value::Array(values) => values,
            _ => Vec::new(),
        }
    }
}
