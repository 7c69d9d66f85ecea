//! [`Cluster`]: a Redis Cluster that belongs to one test.

use std::time::{Duration, Instant};

use crate::patience::eventually_blocking;
use crate::server::{Kind, Server, free_port};
use crate::tls::{Authority, arguments};

/// All hash slots, shared out in ranges.
const SLOTS: usize = 16_384;
/// How long a machine with other work may take for what is done in milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that was told to meet another forgets it when that one did not answer within the node timeout, at least a second
/// (`handshake_timeout` in its `clusterCron`; seen with a node that was stopped meanwhile). It does not try again.
const FORGOTTEN: Duration = Duration::from_secs(2);
const OPTIONS: [&str; 10] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    "--cluster-replica-validity-factor",
    "0",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
];

/// Masters and their replicas; they end with this value.
#[derive(Debug)]
pub struct Cluster {
    /// First the masters, then the replica of each.
    nodes: Vec<Server>,
    /// Where they find each other, and managers them.
    addresses: Vec<String>,
    scheme: &'static str,
}

impl Cluster {
    /// Three masters without replicas.
    #[must_use]
    pub fn start() -> Self {
        Self::with(3, false)
    }

    /// Three masters of a certain kind.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self::launch(kind, 3, false)
    }

    /// One master that has all slots.
    #[must_use]
    pub fn one_node(kind: Kind) -> Self {
        Self::launch(kind, 1, false)
    }

    /// So many masters, with one replica each if wanted, settled.
    #[must_use]
    pub fn with(masters: usize, replicas: bool) -> Self {
        Self::launch(Kind::Redis, masters, replicas)
    }

    /// Three masters of a certain kind, with one replica each.
    #[must_use]
    pub fn with_replicas(kind: Kind) -> Self {
        Self::launch(kind, 3, true)
    }

    /// Three masters that speak TLS to each other and to managers, and nothing else but to this test.
    #[must_use]
    pub fn secured(authority: &Authority) -> Self {
        let mut addresses = Vec::new();
        let nodes = (0..3).map(|_| {
            let port = free_port();
            addresses.push(format!("127.0.0.1:{port}"));
            let options = [arguments(&authority.options(port)), OPTIONS.map(ToOwned::to_owned).to_vec()].concat();
            let options: Vec<_> = options.iter().map(String::as_str).collect();
            Self::start_node(
                Kind::Redis,
                &[&options[..], &["--tls-cluster", "yes", "--tls-replication", "yes"]].concat(),
            )
        });
        let (nodes, buses): (_, Vec<_>) = nodes.unzip();
        Self { nodes, addresses, scheme: "rediss-cluster" }.meet(3, &buses)
    }

    /// As [`with`](Self::with), of a certain kind.
    #[must_use]
    pub fn launch(kind: Kind, masters: usize, replicas: bool) -> Self {
        let count = if replicas { 2 * masters } else { masters };
        let (nodes, buses): (Vec<_>, Vec<_>) = (0..count).map(|_| Self::start_node(kind, &OPTIONS)).unzip();
        let addresses = nodes.iter().map(Server::address).collect();
        Self { nodes, addresses, scheme: "redis-cluster" }.meet(masters, &buses)
    }

    /// One node, and the port on which it listens to the others.
    fn start_node(kind: Kind, options: &[&str]) -> (Server, u16) {
        let bus = free_port();
        (Server::of(kind, &[options, &["--cluster-port", &bus.to_string()]].concat()), bus)
    }

    /// The first are masters that share the slots, the others replicas.
    fn meet(self, masters: usize, buses: &[u16]) -> Self {
        let (count, cluster) = (self.nodes.len(), self);
        for (index, node) in cluster.nodes.iter().enumerate() {
            node.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            if index < masters {
                let (first, end) = (SLOTS * index / masters, SLOTS * (index + 1) / masters);
                node.tell(&format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
            }
        }
        let mut told: Option<Instant> = None;
        eventually_blocking("every node knows all others", PATIENCE, || {
            if told.is_none_or(|told| told.elapsed() > FORGOTTEN) {
                cluster.introduce(buses);
                told = Some(Instant::now());
            }
            cluster.each_knows(count)
        });
        for (index, node) in cluster.nodes.iter().enumerate().skip(masters) {
            node.tell(&format!("CLUSTER REPLICATE {}", cluster.id(index - masters)));
        }
        cluster.settle();
        cluster
    }

    /// The first node and each other are told of one another, if they do not know each other yet.
    fn introduce(&self, buses: &[u16]) {
        let tell = |node: usize, other: usize| {
            let known: String = self.nodes[node].ask("CLUSTER NODES");
            if !known.contains(&format!("{}@", self.addresses[other])) {
                let address = self.addresses[other].replace(':', " ");
                self.nodes[node].tell(&format!("CLUSTER MEET {address} {}", buses[other]));
            }
        };
        for other in 1..self.nodes.len() {
            tell(0, other);
            tell(other, 0);
        }
    }

    fn each_knows(&self, count: usize) -> bool {
        let known = format!("cluster_known_nodes:{count}\r");
        self.nodes.iter().all(|node| {
            let (info, nodes): (String, String) = (node.ask("CLUSTER INFO"), node.ask("CLUSTER NODES"));
            info.contains(&known) && !nodes.contains("handshake")
        })
    }

    /// Waits until every node that answers sees all slots served, and every replica is up to date.
    pub fn settle(&self) {
        eventually_blocking("the cluster settles", PATIENCE, || {
            self.nodes.iter().all(|node| {
                let Ok(info) = node.try_ask::<String>("CLUSTER INFO") else { return true };
                let replication: String = node.try_ask("INFO replication").unwrap_or_default();
                let is_linked = replication.contains("role:master") || replication.contains("master_link_status:up");
                info.contains("cluster_state:ok") && is_linked
            })
        });
    }

    /// For a manager: all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addresses.join(","))
    }

    /// The master that a key is on, by its own account.
    #[must_use]
    pub fn server_of(&self, key: &str) -> &Server {
        &self.nodes[self.owner_of(key)]
    }

    /// The node that serves a key's slot, once there is one.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> usize {
        self.owner(self.slot(key))
    }

    /// One of the nodes: first the masters, then the replica of each.
    #[must_use]
    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// One of the nodes, to end it or to start it again.
    pub fn node_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// All of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter()
    }

    /// The node's name in the cluster.
    #[must_use]
    pub fn id(&self, index: usize) -> String {
        let mut id = None;
        eventually_blocking("the node tells its name", PATIENCE, || {
            id = self.nodes[index].try_ask("CLUSTER MYID").ok();
            id.is_some()
        });
        id.expect("it told")
    }

    /// Tells a node to whose connections something may happen just now.
    fn insist(&self, index: usize, command: &str) {
        let node = &self.nodes[index];
        eventually_blocking("the node does it", PATIENCE, || node.try_ask::<redis::Value>(command).is_ok());
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let any = self.nodes.iter().find_map(|node| node.try_ask(&format!("CLUSTER KEYSLOT {key}")).ok());
        any.expect("a node answers")
    }

    /// Which node serves the slot, by its own account; after a failover there may be none for a moment.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        let mut owner = None;
        eventually_blocking("a master serves the slot", PATIENCE, || {
            let serves = |node| seen_by(node, slot).is_some_and(|seen| seen.is_itself);
            owner = self.nodes.iter().position(serves);
            owner.is_some()
        });
        owner.expect("there is one")
    }

    /// A replica takes over from its master, without a fault.
    pub fn fail_over_to(&self, replica: usize) {
        // A node gives up after five seconds when a master did not answer in time: then again.
        const GIVEN_UP: Duration = Duration::from_secs(6);
        let mut told: Option<Instant> = None;
        eventually_blocking("the replica takes over", PATIENCE, || {
            let is_done = self.is_master(replica);
            if !is_done && told.is_none_or(|told| told.elapsed() > GIVEN_UP) {
                // Refused while the replica has no connection to its master.
                told = self.nodes[replica].try_ask::<()>("CLUSTER FAILOVER").is_ok().then(Instant::now);
            }
            is_done
        });
    }

    /// Whether the node is a master, by its own account.
    #[must_use]
    pub fn is_master(&self, index: usize) -> bool {
        let info = self.nodes[index].try_ask::<String>("INFO replication");
        info.is_ok_and(|info| info.contains("role:master"))
    }

    /// Waits until the node is a master.
    pub fn await_master(&self, index: usize) {
        eventually_blocking("the replica takes over", PATIENCE, || self.is_master(index));
    }

    /// Waits until the node or the other one of its shard knows that the other is the master. Which, a busy machine decides:
    /// a node that gets no processor for its timeout is replaced.
    pub fn await_one_master(&self, index: usize) {
        let other = (index + self.nodes.len() / 2) % self.nodes.len();
        eventually_blocking("there is one master", PATIENCE, || self.is_master(index) != self.is_master(other));
    }

    /// Begins to move a slot to another master: until [`Migration::finish`] keys that are not there
    /// yet are asked for at the other one (`ASK`).
    pub fn start_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.owner(slot);
        self.insist(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        self.insist(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
        Migration { cluster: self, slot, from, to }
    }

    /// Moves a slot to another master as Valkey 9 does it by itself: the slot changes hands in one step, with all keys.
    pub fn migrate_atomically(&self, slot: u16, to: usize) {
        // Refused while a node thinks otherwise, for a moment after a failover; a move that failed is told anew.
        eventually_blocking("the slot moves", PATIENCE, || {
            let from = self.owner(slot);
            if from == to {
                return true;
            }
            let moving = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", self.id(to));
            let _ = self.nodes[from].try_ask::<redis::Value>(&moving);
            false
        });
        eventually_blocking("all know that the slot has moved", PATIENCE, || {
            let id = self.id(to);
            self.nodes.iter().filter_map(|node| seen_by(node, slot)).all(|seen| seen.id == id)
        });
    }

    /// Moves a slot to another master.
    pub fn migrate(&self, slot: u16, to: usize) {
        let migration = self.start_migration(slot, to);
        migration.move_keys();
        migration.finish();
    }
}

/// A slot that is on its way from one master to another.
#[derive(Debug)]
#[must_use = "a slot that is left on its way is served by neither"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Migration<'_> {
    /// Moves the keys that are in the slot now.
    pub fn move_keys(&self) {
        let (from, to) = (&self.cluster.nodes[self.from], &self.cluster.nodes[self.to]);
        let address = to.address().replace(':', " ");
        eventually_blocking("all keys are moved", PATIENCE, || {
            let asked = format!("CLUSTER GETKEYSINSLOT {} 100", self.slot);
            let Ok(keys) = from.try_ask::<Vec<String>>(&asked) else { return false };
            // Refused while the other one takes the cluster for down, for a moment after a failover.
            keys.is_empty() || {
                let _ = from.try_ask::<redis::Value>(&format!("MIGRATE {address}  0 5000 KEYS {}", keys.join(" ")));
                false
            }
        });
    }

    /// The slot is the other master's, and everybody is told.
    pub fn finish(self) {
        // A node whose failover comes between does not take it in, and is told again.
        const AGAIN: Duration = Duration::from_secs(1);
        let mut told: Option<Instant> = None;
        // A replica that took over before it has heard of it would not serve the slot.
        eventually_blocking("all know that the slot has moved", PATIENCE, || {
            let Some((heir, id)) = self.heir() else { return false };
            let mut views = self.cluster.nodes.iter().filter_map(|node| seen_by(node, self.slot));
            let serves = seen_by(&self.cluster.nodes[heir], self.slot).is_some_and(|seen| seen.is_itself);
            let is_known = serves && views.all(|seen| seen.id == id);
            if !is_known && told.is_none_or(|told| told.elapsed() > AGAIN) {
                let assign = format!("CLUSTER SETSLOT {} NODE {id}", self.slot);
                // First where it goes to, so that there is always one who serves it. The others hear of it anyway, and a replica
                // or a node that is down can't be told.
                for node in [heir, self.from].into_iter().chain(0..self.cluster.nodes.len()) {
                    let _ = self.cluster.nodes[node].try_ask::<redis::Value>(&assign);
                }
                told = Some(Instant::now());
            }
            is_known
        });
    }

    /// The node that the slot goes to, or the one that has taken over from it; with its name in the cluster.
    fn heir(&self) -> Option<(usize, String)> {
        let nodes = &self.cluster.nodes;
        let name = |index: usize| nodes[index].try_ask::<String>("CLUSTER MYID").ok();
        if self.cluster.is_master(self.to) {
            return Some((self.to, name(self.to)?));
        }
        let view: String = nodes[self.to].try_ask("CLUSTER NODES").ok()?;
        let own = view.lines().find(|line| line.contains("myself,slave"))?;
        let master = own.split(' ').nth(3)?;
        let heir = (0..nodes.len()).find(|index| name(*index).as_deref() == Some(master))?;
        Some((heir, master.to_owned()))
    }
}

/// Who serves a slot.
struct Seen {
    id: String,
    is_itself: bool,
}

/// Who serves the slot by the account of a node; `None` when nobody does, or the node does not answer.
fn seen_by(node: &Server, slot: u16) -> Option<Seen> {
    let nodes: String = node.try_ask("CLUSTER NODES").ok()?;
    let serves = |line: &&str| {
        line.split(' ').skip(8).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
        })
    };
    let line = nodes.lines().find(serves)?;
    Some(Seen { id: line.split(' ').next()?.to_owned(), is_itself: line.contains("myself,master") })
}
