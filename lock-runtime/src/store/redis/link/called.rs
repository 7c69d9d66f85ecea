//! [`Outgoing`]: a command. [`Called`]: a reply, and a command that waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Cmd, Value};

use super::{Link, Live};
use crate::clock::Moment;

/// A command, as it goes out on a connection.
pub(in super::super) struct Outgoing {
    pub(super) command: Cmd,
    /// Whether the server is to tell when somebody else changes what the command reads.
    pub(in super::super) arms: bool,
}

impl From<Cmd> for Outgoing {
    fn from(command: Cmd) -> Self {
        Self { command, arms: false }
    }
}

impl Outgoing {
    /// The command, which arms alarms.
    pub(in super::super) fn arming(command: Cmd, arms: bool) -> Self {
        Self { command, arms }
    }
}

/// Counts commands while they are on their way.
pub(super) struct InFlight<'a>(&'a AtomicUsize, usize);

impl<'a> InFlight<'a> {
    pub(super) fn new(link: &'a Link, count: usize) -> Self {
        link.in_flight.fetch_add(count, Ordering::Relaxed);
        Self(&link.in_flight, count)
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
