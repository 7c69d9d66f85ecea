//! [`Cluster`]: one test's own Redis Cluster.

use std::time::{Duration, Instant};

use crate::patience::eventually_blocking;
use crate::server::{Kind, Server, free_port};
use crate::tls::{Authority, arguments};

/// The number of hash slots; each master gets a range of them.
const SLOTS: usize = 16_384;
/// What takes milliseconds may take this long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// After `CLUSTER MEET` a node forgets the other one if it does not answer within the node timeout, at least a second
/// (`handshake_timeout` in `clusterCron`; seen with a node that was stopped meanwhile). It does not try again.
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

/// Masters and their replicas; dropping this value stops them.
#[derive(Debug)]
pub struct Cluster {
    /// First the masters, then the replica of each.
    nodes: Vec<Server>,
    /// The ports at which the nodes find each other, and managers find the nodes.
    addresses: Vec<String>,
    scheme: &'static str,
}

impl Cluster {
    /// Three masters without replicas.
    #[must_use]
    pub fn start() -> Self {
        Self::with(3, false)
    }

    /// Three masters of this kind.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self::launch(kind, 3, false)
    }

    /// One master with all slots.
    #[must_use]
    pub fn one_node(kind: Kind) -> Self {
        Self::launch(kind, 1, false)
    }

    /// This many masters, with one replica each if `replicas`, settled.
    #[must_use]
    pub fn with(masters: usize, replicas: bool) -> Self {
        Self::launch(Kind::Redis, masters, replicas)
    }

    /// Three masters of this kind, with one replica each.
    #[must_use]
    pub fn with_replicas(kind: Kind) -> Self {
        Self::launch(kind, 3, true)
    }

    /// Three masters that speak TLS to each other and to managers, and plain text only to this test.
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

    /// [`with`](Self::with) for servers of this kind.
    #[must_use]
    pub fn launch(kind: Kind, masters: usize, replicas: bool) -> Self {
        Self::configured(kind, masters, replicas, &[])
    }

    /// [`launch`](Self::launch) with more options.
    #[must_use]
    pub fn configured(kind: Kind, masters: usize, replicas: bool, options: &[&str]) -> Self {
        let count = if replicas { 2 * masters } else { masters };
        let options = [&OPTIONS, options].concat();
        let (nodes, buses): (Vec<_>, Vec<_>) = (0..count).map(|_| Self::start_node(kind, &options)).unzip();
        let addresses = nodes.iter().map(Server::address).collect();
        Self { nodes, addresses, scheme: "redis-cluster" }.meet(masters, &buses)
    }

    /// One node, and the port of its cluster bus.
    fn start_node(kind: Kind, options: &[&str]) -> (Server, u16) {
        let bus = free_port();
        (Server::of(kind, &[options, &["--cluster-port", &bus.to_string()]].concat()), bus)
    }

    /// Makes the first nodes masters that share the slots, and the others replicas.
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

    /// Introduces the first node and each other one to each other, unless they know each other already.
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

    /// Waits until every node that answers sees all slots served, and every replica is up to date and confirms writes.
    pub fn settle(&self) {
        eventually_blocking("the cluster settles", PATIENCE, || {
            self.nodes.iter().all(|node| {
                let Ok(info) = node.try_ask::<String>("CLUSTER INFO") else { return true };
                let replication: String = node.try_ask("INFO replication").unwrap_or_default();
                let is_linked = replication.contains("master_link_status:up");
                let is_settled = is_linked || replication.contains("role:master") && node.is_replicated();
                info.contains("cluster_state:ok") && is_settled
            })
        });
    }

    /// The URL for managers: all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addresses.join(","))
    }

    /// The master that says it has this key.
    #[must_use]
    pub fn server_of(&self, key: &str) -> &Server {
        &self.nodes[self.owner_of(key)]
    }

    /// The node that serves a key's slot, once there is one.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> usize {
        self.owner(self.slot(key))
    }

    /// A node by its index: first the masters, then the replica of each.
    #[must_use]
    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// A node by its index, to kill or restart it.
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
        eventually_blocking("the node answers with its name", PATIENCE, || {
            id = self.nodes[index].try_ask("CLUSTER MYID").ok();
            id.is_some()
        });
        id.expect("it told")
    }

    /// Repeats a command until the node executes it; its connections may be breaking just now.
    fn insist(&self, index: usize, command: &str) {
        let node = &self.nodes[index];
        eventually_blocking("the node executes the command", PATIENCE, || {
            node.try_ask::<redis::Value>(command).is_ok()
        });
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let any = self.nodes.iter().find_map(|node| node.try_ask(&format!("CLUSTER KEYSLOT {key}")).ok());
        any.expect("a node answers")
    }

    /// The node that says it serves the slot. Waits for one: after a failover there may be none for a moment.
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

    /// Makes a replica take over from its master, without a fault.
    pub fn fail_over_to(&self, replica: usize) {
        // A node gives up after five seconds if a master does not answer in time. Then send the command again.
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

    /// Whether the node says that it is a master.
    #[must_use]
    pub fn is_master(&self, index: usize) -> bool {
        let info = self.nodes[index].try_ask::<String>("INFO replication");
        info.is_ok_and(|info| info.contains("role:master"))
    }

    /// Waits until the node is a master.
    pub fn await_master(&self, index: usize) {
        eventually_blocking("the replica takes over", PATIENCE, || self.is_master(index));
    }

    /// Waits until one of the two nodes of a shard sees the other as its master. Which one becomes the master depends on the machine: a
    /// node that gets no processor time for its timeout is replaced.
    pub fn await_one_master(&self, index: usize) {
        let other = (index + self.nodes.len() / 2) % self.nodes.len();
        eventually_blocking("there is one master", PATIENCE, || self.is_master(index) != self.is_master(other));
    }

    /// Starts to move a slot to another master: until [`Migration::finish`], keys that do not exist yet are redirected to the other one
    /// (`ASK`).
    pub fn start_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.owner(slot);
        self.insist(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        self.insist(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
        Migration { cluster: self, slot, from, to }
    }

    /// Moves a slot to another master with Valkey 9's atomic migration: in one step, with all keys.
    pub fn migrate_atomically(&self, slot: u16, to: usize) {
        // Refused for a moment after a failover, while a node still has an old view. Repeat a move that failed.
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

/// A slot that is being moved from one master to another.
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
        let Self { cluster, slot, .. } = self;
        eventually_blocking("all keys are moved", PATIENCE, || {
            let (Some((from, source)), Some((to, target))) = (self.heir(self.from), self.heir(self.to)) else {
                return false;
            };
            let Ok(keys) = cluster.nodes[from].try_ask::<Vec<String>>(&format!("CLUSTER GETKEYSINSLOT {slot} 100"))
            else {
                return false;
            };
            if keys.is_empty() {
                return true;
            }
            // A replica that has taken over knows nothing of the move.
            let _ = cluster.nodes[to].try_ask::<redis::Value>(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
            let _ = cluster.nodes[from].try_ask::<redis::Value>(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
            // Refused for a moment after a failover, while the target still considers the cluster down.
            let address = cluster.nodes[to].address().replace(':', " ");
            let moving = format!("MIGRATE {address}  0 5000 KEYS {}", keys.join(" "));
            let _ = cluster.nodes[from].try_ask::<redis::Value>(&moving);
            false
        });
    }

    /// Assigns the slot to the other master, on all nodes.
    pub fn finish(self) {
        // A node refuses it while it fails over. Then send it again.
        const AGAIN: Duration = Duration::from_secs(1);
        let mut told: Option<Instant> = None;
        // A replica that takes over before it learns of the move would not serve the slot.
        eventually_blocking("all know that the slot has moved", PATIENCE, || {
            let Some((heir, id)) = self.heir(self.to) else { return false };
            let mut views = self.cluster.nodes.iter().filter_map(|node| seen_by(node, self.slot));
            let serves = seen_by(&self.cluster.nodes[heir], self.slot).is_some_and(|seen| seen.is_itself);
            let is_known = serves && views.all(|seen| seen.id == id);
            if !is_known && told.is_none_or(|told| told.elapsed() > AGAIN) {
                let assign = format!("CLUSTER SETSLOT {} NODE {id}", self.slot);
                // First the new owner, so that some node always serves the slot. The others learn of it through gossip; a replica, or a
                // node that is down, can't take the command.
                for node in [heir, self.from].into_iter().chain(0..self.cluster.nodes.len()) {
                    let _ = self.cluster.nodes[node].try_ask::<redis::Value>(&assign);
                }
                told = Some(Instant::now());
            }
            is_known
        });
    }

    /// The node `of`, or the one that took over from it, and its name in the cluster.
    fn heir(&self, of: usize) -> Option<(usize, String)> {
        let nodes = &self.cluster.nodes;
        let name = |index: usize| nodes[index].try_ask::<String>("CLUSTER MYID").ok();
        if self.cluster.is_master(of) {
            return Some((of, name(of)?));
        }
        let view: String = nodes[of].try_ask("CLUSTER NODES").ok()?;
        let own = view.lines().find(|line| line.contains("myself,slave"))?;
        let master = own.split(' ').nth(3)?;
        let heir = (0..nodes.len()).find(|index| name(*index).as_deref() == Some(master))?;
        Some((heir, master.to_owned()))
    }
}

struct Seen {
    id: String,
    is_itself: bool,
}

/// The node that serves the slot according to `node`; `None` if there is none, or if `node` does not answer.
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
