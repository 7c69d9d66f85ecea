//! The sharded channels of a connection to a node of a cluster. A message on such a channel goes only to the nodes of one shard.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, PushKind, Value};

use super::{Channel, Link};
use crate::hash_slot::{NodeId, slot_of, tag_of};
use crate::mutex::Mutex;
use crate::wire::text;

/// A connection subscribes to the channels of at most this many slots. For other slots the server uses the process's own channel.
const MOST_SLOTS: usize = 4096;

/// The shard state of a connection to a node of a cluster.
pub(super) struct Shard {
    /// The node at the other end.
    pub(super) node: NodeId,
    /// The slots whose channels this connection is subscribed to.
    heard: Mutex<HashSet<u16>>,
    /// Whether the user may not subscribe to sharded channels.
    is_refused: AtomicBool,
}

impl Shard {
    /// From the answer to `CLUSTER MYID`. `None` when the server does not answer it: then no message can be attributed to this node.
    pub(super) fn of(id: Option<Value>) -> Option<Self> {
        let node = NodeId::read(&text(id?)?)?;
        Some(Self { node, heard: Mutex::default(), is_refused: AtomicBool::new(false) })
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, HashSet<u16>> {
        // Nothing under this lock can panic.
        self.heard.lock()
    }

    /// The command that subscribes to the channel of `slot`; `None` when it is not needed, or not possible.
    pub(super) fn subscription(&self, slot: u16, channel: &Channel) -> Option<Cmd> {
        let heard = self.heard();
        if heard.contains(&slot) || heard.len() >= MOST_SLOTS || self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        Some(redis::cmd("SSUBSCRIBE").arg(format!("{}{{{}}}", channel.name, tag_of(slot))).clone())
    }

    /// Handles the answer to a subscription. A server that redirects it also redirects the command behind it.
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
    /// The text in the braces of the sharded channels of the slot of `key`, which a script needs to publish there. `None` without a
    /// connection to a node of a cluster.
    pub fn shard_tag(&self, key: &str) -> Option<u32> {
        let is_sharded = || self.state.lock().live.as_ref().is_some_and(|live| live.shard.is_some());
        (self.endpoint.is_node() && is_sharded()).then(|| tag_of(slot_of(key)))
    }

    /// Whether the connection of `generation` leads to the node `sender`.
    pub(crate) fn leads_to(&self, sender: NodeId, generation: u64) -> bool {
        mutant!(RelayedGrantTrusted => return true);
        let state = self.state.lock();
        let live = state.live.as_ref().filter(|live| live.made.generation == generation);
        live.and_then(|live| live.shard.as_ref()).is_some_and(|shard| shard.node == sender)
    }
}
