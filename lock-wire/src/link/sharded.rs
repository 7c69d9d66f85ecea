//! The sharded channels of a connection to a node of a cluster. A message on such a channel concerns the nodes of one shard, and
//! not all nodes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, PushKind, Value};

use super::{Channel, Link};
use crate::hash_slot::{NodeId, slot_of, tag_of};
use crate::mutex::Mutex;
use crate::wire::text;

/// A connection subscribes to the channels of this number of slots at most. For other slots the server uses the process's own channel.
const MOST_SLOTS: usize = 4096;

/// What belongs to one connection to a node of a cluster.
pub(super) struct Shard {
    /// The node at the other end.
    pub(super) node: NodeId,
    /// The slots whose channels this connection hears.
    heard: Mutex<HashSet<u16>>,
    /// The server does not let the user subscribe.
    is_refused: AtomicBool,
}

impl Shard {
    /// By the answer to `CLUSTER MYID`. `None` when the server does not tell it: then no message can be told to be of this node.
    pub(super) fn of(id: Option<Value>) -> Option<Self> {
        let node = NodeId::read(&text(id?)?)?;
        Some(Self { node, heard: Mutex::default(), is_refused: AtomicBool::new(false) })
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, HashSet<u16>> {
        // Nothing that can panic runs under this lock.
        self.heard.lock()
    }

    /// The command that subscribes to the channel of `slot`; `None` when this need not be, or can't be.
    pub(super) fn subscription(&self, slot: u16, channel: &Channel) -> Option<Cmd> {
        let heard = self.heard();
        if heard.contains(&slot) || heard.len() >= MOST_SLOTS || self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        Some(redis::cmd("SSUBSCRIBE").arg(format!("{}{{{}}}", channel.name, tag_of(slot))).clone())
    }

    /// Takes in the answer to a subscription. A server that redirects it redirects the command behind it as well.
    pub(super) fn on_subscribed(&self, slot: u16, answer: &Value) {
        match answer {
            Value::Push { kind: PushKind::SSubscribe, .. } => drop(self.heard().insert(slot)),
            Value::ServerError(error) if matches!(error.code(), "NOPERM" | "ERR") => {
                self.is_refused.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Link {
    /// What a script needs to know in order to publish on the sharded channels of the slot of `key`: the text in their braces.
    /// `None` without a connection to a node of a cluster.
    pub fn shard_tag(&self, key: &str) -> Option<u32> {
        let is_sharded = || self.state.lock().live.as_ref().is_some_and(|live| live.shard.is_some());
        (self.endpoint.is_node() && is_sharded()).then(|| tag_of(slot_of(key)))
    }

    /// Whether the node at the other end of the connection of `generation` is `sender`.
    pub(crate) fn leads_to(&self, sender: NodeId, generation: u64) -> bool {
        mutant!(RelayedGrantTrusted => return true);
        let state = self.state.lock();
        let live = state.live.as_ref().filter(|live| live.made.generation == generation);
        live.and_then(|live| live.shard.as_ref()).is_some_and(|shard| shard.node == sender)
    }
}
