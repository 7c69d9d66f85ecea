//! [`Called`]: a reply, and a command that waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Value;

use super::{Link, Live};
use crate::clock::Moment;

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
