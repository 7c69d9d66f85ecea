//! What the user of the client provides: [`Command`], how a command is written; [`Purpose`], what a server is needed for; [`Events`], what
//! is reported.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::Link;
use crate::clock::{Drift, Moment};
use crate::failure::CallError;
use crate::greeting::Ability;
use crate::hash_slot::NodeId;
use crate::wire::{Sender, Sent};

/// A command. It decides what is written; the client decides when, and over which connection.
pub trait Command: Send + Sync {
    /// Writes the command as it is sent alone, or behind a command of the client.
    fn write(&self, output: &mut Vec<u8>);

    /// Sends the command; usually it just [writes](Self::write) it.
    fn send<'a>(&'a self, link: &'a Link, sender: Sender<'a>) -> Sent<'a> {
        link.note_commands(1);
        sender.send_written(|output| self.write(output))
    }
}

/// As the `redis` crate writes it.
impl Command for Cmd {
    fn write(&self, output: &mut Vec<u8>) {
        self.write_packed_command(output);
    }
}

/// What is known about a server once it was greeted.
#[derive(Default)]
pub struct Known {
    /// Kept with the connection: [`Called::known`](crate::Called::known).
    pub kept: Option<Arc<dyn Any + Send + Sync>>,
    /// The initial [marks](Link::has_mark) of the connection.
    pub marks: u32,
}

/// What a server is needed for, as far as that changes how the client treats it.
pub trait Purpose: Send + Sync + 'static {
    /// What the server has to support. Versions say nothing: a hosted server may lack any command.
    fn needs(&self) -> &'static [Ability] {
        &[]
    }

    /// Adds commands to each greeting.
    fn ask(&self, _commands: &mut Pipeline) {}

    /// Reads the replies to those commands.
    fn read(&self, _replies: &mut dyn Iterator<Item = Value>) -> Result<Known, CallError> {
        Ok(Known::default())
    }

    /// The code of a refusal inside a reply that is not an error.
    fn refusal<'a>(&self, _reply: &'a Value) -> Option<&'a str> {
        None
    }

    /// The error for a command on this link that was not answered within this time.
    fn unanswered(&self, _link: &Link, limit: Duration) -> CallError {
        CallError::Silent(limit)
    }

    /// Whether other servers are asked the same, so that there is no need to wait for this one.
    fn has_others(&self) -> bool {
        false
    }
}

/// Any server will do.
impl Purpose for () {}

/// The events of a client's connections. None of these is called under a lock of the client.
pub trait Events: Send + Sync + 'static {
    /// This many commands are sent.
    fn on_commands(&self, _count: usize) {}

    /// A message arrived on the process's channel.
    fn on_message(&self, _source: Source<'_>, _text: &str) {}

    /// Another client changed this key, which an [arming](crate::Outgoing::arming) command read; `None` for all keys.
    fn on_change(&self, _source: Source<'_>, _key: Option<&str>) {}

    /// Pushes may have been missed, and the server's state may be lost, for all keys that this `affects`.
    fn on_interruption(&self, _affects: &dyn Fn(&str) -> bool) {}

    /// A connection was made, this long after the last one broke.
    fn on_connected(&self, _link: &Link, _away: Option<Duration>) {}

    /// A connection broke, or was given up.
    fn on_disconnected(&self, _link: &Link) {}

    /// No connection could be made. Further failures are not reported until there is a connection.
    fn on_unreachable(&self, _link: &Link, _error: CallError) {}

    /// A command went unanswered on a connection that had answered before.
    fn on_silence(&self, _link: &Link, _waited: Duration) {}

    /// A server that was silent answers again.
    fn on_answer_again(&self, _link: &Link) {}

    /// The connection is left because of a refusal with this code: another server may be the master by now.
    fn on_former_master(&self, _link: &Link, _code: &str) {}

    /// The server's clock gained this many parts per million within this time, which is more than is allowed for.
    fn on_fast_clock(&self, _link: &Link, _ppm: u128, _within: Duration) {}

    /// A master of a cluster is used for the first time.
    fn on_new_master(&self, _link: &Arc<Link>) {}
}

/// Ignores all events.
impl Events for () {}

/// The connection over which something was pushed.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub(crate) link: &'a Link,
    pub(crate) generation: u64,
}

impl Source<'_> {
    /// Whether the key lives on this server. A message may reach all servers of a cluster.
    pub fn has(&self, key: &str) -> bool {
        self.link.is_own(key)
    }

    /// Whether this server counts only its own subscribers, as the nodes of a cluster do, and is not `node`.
    pub fn is_other_than(&self, node: Option<NodeId>) -> bool {
        self.link.is_one_of_several() && !node.is_some_and(|node| self.link.leads_to(node, self.generation))
    }
}

/// An instant of a server's clock, and an instant of this process's clock that was certainly not later.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    /// By this process's clock.
    pub sent: Moment,
    /// By the server's clock, in microseconds since 1970.
    pub store_micros: u64,
    /// How far the two clocks may drift apart.
    pub drift: Drift,
    /// The node of a cluster that the clock belongs to.
    pub node: Option<NodeId>,
}
