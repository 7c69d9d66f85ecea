//! Where the user of the client comes in: [`Command`], how a command is written; [`Purpose`], what a server is needed for; [`Events`],
//! what is told.

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

/// A command. The client decides when and over which connection it goes out, the command how.
pub trait Command: Send + Sync {
    /// Writes the command for when it goes alone, also behind a command of the client.
    fn write(&self, output: &mut Vec<u8>);

    /// Sends the command, which most often is to [write](Self::write) it.
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

/// What is known of a server when it has been greeted.
#[derive(Default)]
pub struct Known {
    /// Kept with the connection: [`Called::known`](crate::Called::known).
    pub kept: Option<Arc<dyn Any + Send + Sync>>,
    /// The first [marks](Link::has_mark) of the connection.
    pub marks: u32,
}

/// What a server is needed for, as far as that changes how the client treats it.
pub trait Purpose: Send + Sync + 'static {
    /// What the server has to be able to do. No server is known by its version: a hosted one may lack any command.
    fn needs(&self) -> &'static [Ability] {
        &[]
    }

    /// Adds commands that go along with each greeting.
    fn ask(&self, _commands: &mut Pipeline) {}

    /// Reads their replies.
    fn read(&self, _replies: &mut dyn Iterator<Item = Value>) -> Result<Known, CallError> {
        Ok(Known::default())
    }

    /// The code of a refusal inside of a reply that is no error.
    fn refusal<'a>(&self, _reply: &'a Value) -> Option<&'a str> {
        None
    }

    /// Why nothing was answered for this long.
    fn unanswered(&self, limit: Duration) -> CallError {
        CallError::Silent(limit)
    }

    /// Whether other servers are asked the same, so that nobody waits for this one.
    fn has_others(&self) -> bool {
        false
    }
}

/// Any server will do.
impl Purpose for () {}

/// What the connections of a client tell. Nothing of this is called under a lock of the client.
pub trait Events: Send + Sync + 'static {
    /// So many commands go out.
    fn on_commands(&self, _count: usize) {}

    /// A message came on the process's channel.
    fn on_message(&self, _source: Source<'_>, _text: &str) {}

    /// Another client has changed this key, which was read behind a command that was [arming](crate::Outgoing::arming); `None` for all keys.
    fn on_change(&self, _source: Source<'_>, _key: Option<&str>) {}

    /// Pushes may have been missed, and what the server knew may be lost, for all keys that this `affects`.
    fn on_interruption(&self, _affects: &dyn Fn(&str) -> bool) {}

    /// A connection was made, for so long after one that broke.
    fn on_connected(&self, _link: &Link, _away: Option<Duration>) {}

    /// A connection broke, or was given up.
    fn on_disconnected(&self, _link: &Link) {}

    /// No connection could be made. The next failures are not told until there is a connection.
    fn on_unreachable(&self, _link: &Link, _error: CallError) {}

    /// A command went unanswered on a connection that had answered before.
    fn on_silence(&self, _link: &Link, _waited: Duration) {}

    /// A server that was silent answers again.
    fn on_answer_again(&self, _link: &Link) {}

    /// The connection is left for a refusal with this code: another server may be the master by now.
    fn on_former_master(&self, _link: &Link, _code: &str) {}

    /// The server's clock gained so many parts per million within this time, which is more than is allowed for.
    fn on_fast_clock(&self, _link: &Link, _ppm: u128, _within: Duration) {}

    /// A master of a cluster is used for the first time.
    fn on_new_master(&self, _link: &Arc<Link>) {}
}

/// Nobody listens.
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

    /// Whether this server counts its listeners for itself, as the nodes of a cluster do, and is not `node`.
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
    /// The node of a cluster whose clock it is.
    pub node: Option<NodeId>,
}
