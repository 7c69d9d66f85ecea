//! [`Cluster`]: the masters of a Redis Cluster. A master gets a connection when one of its keys is first used.
//!
//! The `redis` crate's `ClusterConnection` connects to every master, repeats commands long after their callers gave up, and can lose the
//! wake-up of a redirected command.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};

mod map;
mod route;
pub(crate) mod seeds;
pub(crate) mod topology;

use map::Node;
use route::Route;
use topology::Topology;

use crate::clock::Deadline;
use crate::failure::CallError;
use crate::hash_slot::slot_of;
use crate::link::{Called, Channel, Command, Link, Outgoing, Purpose};
use crate::mutex::Mutex;

/// Connections to the masters of a cluster.
pub struct Cluster {
    topology: Arc<Topology>,
    /// What these connections subscribe to.
    channel: Channel,
    purpose: Arc<dyn Purpose>,
    links: Mutex<BTreeMap<Node, Arc<Link>>>,
    /// Called for each master that gets a link.
    on_new_master: OnceLock<OnNewMaster>,
}

type OnNewMaster = Box<dyn Fn(Node) + Send + Sync>;

impl Cluster {
    /// Connections that subscribe to `channel`. They are made when first needed.
    pub fn new(topology: &Arc<Topology>, channel: Channel, purpose: Arc<dyn Purpose>) -> Arc<Self> {
        Arc::new(Self {
            topology: Arc::clone(topology),
            channel,
            purpose,
            links: Mutex::default(),
            on_new_master: OnceLock::new(),
        })
    }

    /// From now on `other` connects to each master that `self` connects to, so that its first command there need not wait for a connection.
    pub fn mirror_connections(&self, other: &Arc<Self>) {
        let (other, spawn) = (Arc::clone(other), Arc::clone(&self.topology.common.spawn));
        let on_new_master = move |node| {
            let other = Arc::clone(&other);
            spawn(Box::pin(async move {
                // The next command reports why there is no connection.
                let _ = other.link(&node).connect().await;
            }));
        };
        // The builder calls this once.
        let _ = self.on_new_master.set(Box::new(on_new_master));
    }

    pub(crate) async fn connect(&self) -> Result<(), CallError> {
        self.topology.load().await
    }

    pub(crate) fn server_of(&self, key: &str) -> usize {
        self.topology.index(key)
    }

    /// The address of the master of the key's slot, for messages.
    pub(crate) fn server_name(&self, key: &str) -> String {
        self.topology.master(slot_of(key)).map_or_else(|| "the cluster".to_owned(), |(node, _)| node.to_string())
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<Node, Arc<Link>>> {
        // Nothing under this lock can panic.
        self.links.lock()
    }

    /// The link to the master of the key's slot. `None` when the master is unknown or was not needed yet.
    pub(crate) fn link_of(&self, key: &str) -> Option<Arc<Link>> {
        let (node, _) = self.topology.master(slot_of(key))?;
        self.links().get(&node).cloned()
    }

    /// The link to a node; made if there is none.
    fn link(&self, node: &Node) -> Arc<Link> {
        let mut links = self.links();
        if let Some(link) = links.get(node) {
            return Arc::clone(link);
        }
        let (endpoint, common) = (self.topology.endpoint(node), self.topology.common.clone());
        let events = Arc::clone(&common.events);
        let link = Link::new(endpoint, Some(self.channel.clone()), Arc::clone(&self.purpose), common);
        let (topology, own) = (Arc::downgrade(&self.topology), node.clone());
        link.restrict(Box::new(move |key| topology.upgrade().is_some_and(|topology| topology.lives_at(key, &own))));
        // Drops the links to servers that are no longer masters.
        links.retain(|node, _| self.topology.is_master(node));
        links.insert(node.clone(), Arc::clone(&link));
        drop(links);
        if let Some(tell) = self.on_new_master.get() {
            tell(node.clone());
        }
        events.on_new_master(&link);
        link
    }

    /// Sends a command to the master of the key's slot, and follows the slot when it moves.
    pub(crate) fn call<'a, C: Command + 'a>(
        &'a self,
        key: &'a str,
        command: &'a (dyn Fn(&Link) -> Outgoing<C> + Send + Sync),
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Called, CallError>> {
        Box::pin(Route::new(self, slot_of(key), deadline).follow(command, deadline))
    }

    /// The slot's master, and whether it is in doubt. Then the other nodes are asked first.
    async fn master(&self, slot: u16, deadline: Deadline) -> Result<(Node, bool), CallError> {
        match self.topology.master(slot) {
            Some((node, None)) => return Ok((node, false)),
            // A newer connection works: only connecting took long.
            Some((node, Some(since))) if self.links().get(&node).is_some_and(|link| link.was_made_after(since)) => {
                self.topology.trust(&node);
                return Ok((node, false));
            }
            _ => self.topology.look_for(slot, deadline.remaining() / 2).await,
        }
        let nobody = || CallError::Unsuitable("no master serves the lock's hash slot".to_owned());
        let (node, doubtful) = self.topology.master(slot).ok_or_else(nobody)?;
        Ok((node, doubtful.is_some()))
    }

    /// The round trip to the most distant master.
    pub(crate) fn round_trip(&self) -> Duration {
        self.asked_masters().iter().map(|(_, link)| link.round_trip()).max().unwrap_or_default()
    }

    /// The longest lag of these connections.
    pub(crate) fn lag(&self) -> Duration {
        let links: Vec<_> = self.links().values().cloned().collect();
        links.iter().map(|link| link.lag()).max().unwrap_or_default()
    }

    /// The masters that were used, or could not be connected to. A link to a former master stays until the next link is made.
    fn asked_masters(&self) -> Vec<(Node, Arc<Link>)> {
        let links = self.links();
        let is_master = |node: &Node| {
            mutant!(FormerMasterCounts => return true);
            self.topology.is_master(node)
        };
        let asked = links.iter().filter(|(node, link)| (link.was_used() || link.was_refused()) && is_master(node));
        asked.map(|(node, link)| (node.clone(), Arc::clone(link))).collect()
    }

    /// A link to each master.
    pub(crate) fn to_all_masters(&self) -> Vec<Arc<Link>> {
        let masters = self.topology.masters();
        // A node without a usable address has no reachable keys.
        masters.iter().map(|node| self.link(node)).collect()
    }

    /// Whether the masters are known, and those in use have a connection. The others connect when needed.
    pub(crate) fn is_connected(&self) -> bool {
        self.topology.knows_masters() && self.asked_masters().iter().all(|(_, link)| link.is_connected())
    }

    /// Whether the runtime that reads any of the connections is blocked. Probes all of them.
    pub(crate) fn probe_reader(&self) -> bool {
        let links: Vec<_> = self.links().values().cloned().collect();
        links.iter().filter(|link| link.probe_reader()).count() > 0
    }

    /// Starts to reconnect broken connections, and to look for the masters: another node may serve the slots of an unreachable one.
    pub(crate) fn begin_to_connect(&self) {
        let mut looks_for = (!self.topology.knows_masters()).then_some(0);
        for (node, link) in self.asked_masters() {
            if !link.is_connected() {
                self.topology.doubt(&node);
                looks_for = looks_for.or_else(|| self.topology.a_slot_of(&node));
            }
            link.begin_to_connect();
        }
        if let Some(slot) = looks_for {
            mutant!(LostMasterNotLookedFor => return);
            let topology = Arc::clone(&self.topology);
            tokio::spawn(async move { topology.look_for(slot, topology.common.connect_timeout).await });
        }
    }

    /// Replaces broken connections.
    pub(crate) async fn connect_again(&self, deadline: Deadline) {
        join_all(self.asked_masters().iter().map(|(_, link)| link.connect_again(deadline))).await;
    }

    /// Sends a heartbeat on each connection.
    pub(crate) async fn heartbeat(&self, deadline: Deadline) {
        let links: Vec<_> = self.links().values().filter(|link| link.is_connected()).cloned().collect();
        join_all(links.iter().map(|link| link.heartbeat(deadline))).await;
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.topology).finish()
    }
}
