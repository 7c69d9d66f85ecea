//! [`Topology`]: what a client knows about the cluster, and how it updates that.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::map::{Map, Node};
use super::seeds::Seeds;
use crate::clock::Moment;
use crate::endpoint::Endpoint;
use crate::failure::CallError;
use crate::hash_slot::{SLOTS, slot_of};
use crate::link::Common;
use crate::mutex::Mutex;

/// The minimum time between two fetches of the map.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for other nodes when a node's answer has no news.
const SECOND_OPINION: Duration = Duration::from_millis(25);
/// How long a map of an older epoch is rejected. After that the newer epoch may no longer count, because the cluster was set up again.
const MEMORY: Duration = Duration::from_secs(10);
/// How many nodes are asked at once.
const NODES_AT_ONCE: usize = 8;

/// The map of one cluster, and which masters are in doubt because a command failed there.
pub struct Topology {
    seeds: Seeds,
    pub(super) common: Common,
    state: Mutex<State>,
    /// Notified when a fetch of the map ends or times out.
    ask_ended: Notify,
    /// Where the next fetch starts in the list of nodes.
    turn: AtomicUsize,
}

#[derive(Default)]
struct State {
    map: Map,
    /// When a node last confirmed the map.
    told: Option<Moment>,
    /// Since when a master is in doubt. A connection made after that ends the doubt.
    doubtful: BTreeMap<Node, Moment>,
    /// When the nodes were last asked for the map, and whether that fetch has ended.
    last_ask: Option<(Moment, bool)>,
}

impl Topology {
    /// An empty map.
    pub fn new(seeds: Seeds, common: Common) -> Arc<Self> {
        Arc::new(Self { seeds, common, state: Mutex::default(), ask_ended: Notify::new(), turn: AtomicUsize::new(0) })
    }

    pub(super) fn endpoint(&self, node: &Node) -> Endpoint {
        self.seeds.endpoint(node)
    }

    /// The slot's master, and since when it is in doubt.
    pub(super) fn master(&self, slot: u16) -> Option<(Node, Option<Moment>)> {
        let state = self.state.lock();
        let master = state.map.master(slot)?;
        Some((master.clone(), state.doubtful.get(master).copied()))
    }

    /// A number that identifies the master of the key's slot.
    pub(super) fn index(&self, key: &str) -> usize {
        self.state.lock().map.index(slot_of(key))
    }

    pub(super) fn lives_at(&self, key: &str, node: &Node) -> bool {
        self.state.lock().map.master(slot_of(key)) == Some(node)
    }

    /// Any slot that `node` serves.
    pub(super) fn a_slot_of(&self, node: &Node) -> Option<u16> {
        let state = self.state.lock();
        (0..SLOTS).find(|slot| state.map.master(*slot) == Some(node))
    }

    pub(super) fn knows_masters(&self) -> bool {
        !self.masters().is_empty()
    }

    pub(super) fn is_master(&self, node: &Node) -> bool {
        self.state.lock().map.is_master(node)
    }

    pub(super) fn masters(&self) -> Vec<Node> {
        let state = self.state.lock();
        state.map.nodes().filter(|node| state.map.is_master(node)).cloned().collect()
    }

    pub(super) fn doubt(&self, node: &Node) {
        self.state.lock().doubtful.entry(node.clone()).or_insert_with(Moment::now);
    }

    pub(super) fn trust(&self, node: &Node) {
        self.state.lock().doubtful.remove(node);
    }

    /// A node named the slot's new master. Most likely other slots moved as well, and the new master knows which.
    pub(super) fn on_moved(self: &Arc<Self>, slot: u16, to: &Node) {
        self.change(|map| map.assign(slot, to.clone()));
        if self.begin() {
            let (topology, to) = (Arc::clone(self), to.clone());
            tokio::spawn(async move {
                if let Ok(map) = topology.seeds.fetch_map(&to, topology.common.connect_timeout).await {
                    topology.learn(map);
                }
                topology.end();
            });
        }
    }

    /// Asks all nodes for the map at the same time.
    pub(super) async fn load(&self) -> Result<(), CallError> {
        let map = self.fetch_map(self.seeds.nodes().to_vec(), self.common.connect_timeout, |_| true).await?;
        self.learn(map);
        Ok(())
    }

    /// Asks the nodes that are not in doubt for the master of `slot`, unless they were asked a moment ago. A separate task asks, because
    /// distant nodes may take longer to answer than the caller waits.
    pub(super) async fn look_for(self: &Arc<Self>, slot: u16, limit: Duration) {
        let limit = limit.min(self.common.command_timeout / 2);
        let ask_ended = self.ask_ended.notified();
        if self.begin() {
            let topology = Arc::clone(self);
            tokio::spawn(async move {
                topology.ask_for(slot).await;
                topology.end();
            });
            let _ = timeout(limit, ask_ended).await;
        } else if self.state.lock().last_ask.is_some_and(|(_, is_over)| !is_over) {
            let _ = timeout(limit.min(PAUSE), ask_ended).await;
        }
    }

    async fn ask_for(&self, slot: u16) {
        let before = self.state.lock().map.clone();
        let is_news = |map: &Map| {
            let master = map.master(slot);
            map.epoch >= before.epoch && master.is_some() && master != before.master(slot)
        };
        if let Ok(map) = self.fetch_map(self.witnesses(), self.common.connect_timeout, is_news).await {
            self.learn(map);
        }
    }

    /// Whether to start a fetch: not while another task fetches, or has just done so. That task may be blocked, or wait for nodes that are;
    /// so its fetch counts for at most the command timeout.
    fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let quiet = |is_over| if is_over { PAUSE } else { PAUSE.max(self.common.command_timeout) };
        if state.last_ask.is_some_and(|(at, is_over)| at.elapsed() < quiet(is_over)) {
            return false;
        }
        state.last_ask = Some((Moment::now(), false));
        true
    }

    fn end(&self) {
        if let Some((_, is_over)) = &mut self.state.lock().last_ask {
            *is_over = true;
        }
        self.ask_ended.notify_waiters();
    }

    /// The nodes to ask: those not in doubt, or all nodes if every node is.
    fn witnesses(&self) -> Vec<Node> {
        let state = self.state.lock();
        let mut nodes: Vec<Node> = state.map.nodes().cloned().collect();
        for seed in self.seeds.nodes() {
            if !nodes.contains(seed) {
                nodes.push(seed.clone());
            }
        }
        if nodes.iter().any(|node| !state.doubtful.contains_key(node)) {
            nodes.retain(|node| !state.doubtful.contains_key(node));
        }
        drop(state);
        if nodes.len() > NODES_AT_ONCE {
            let turn = self.turn.fetch_add(NODES_AT_ONCE, Ordering::Relaxed) % nodes.len();
            nodes.rotate_left(turn);
            nodes.truncate(NODES_AT_ONCE);
        }
        nodes
    }

    /// The first answer that `is_news`, else the last answer that arrives soon after the first.
    async fn fetch_map(
        &self,
        nodes: Vec<Node>,
        limit: Duration,
        is_news: impl Fn(&Map) -> bool,
    ) -> Result<Map, CallError> {
        // Tasks in a `JoinSet`, so that they end with this future.
        let mut asked = JoinSet::new();
        for node in nodes {
            let seeds = self.seeds.clone();
            asked.spawn(async move { seeds.fetch_map(&node, limit).await });
        }
        let mut outcome = Err(CallError::Unsuitable("no node could be asked".to_owned()));
        let mut until = Instant::now() + limit + SECOND_OPINION;
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            match answer {
                Ok(Ok(map)) if is_news(&map) => return Ok(map),
                Ok(Ok(map)) => {
                    until = until.min(Instant::now() + SECOND_OPINION);
                    outcome = Ok(map);
                }
                Ok(Err(error)) if outcome.is_err() => outcome = Err(error),
                _ => {}
            }
        }
        outcome
    }

    /// Adopts a node's map unless the map is older: an older map may name a former master that still takes writes.
    fn learn(&self, map: Map) {
        {
            let mut state = self.state.lock();
            if map.epoch < state.map.epoch && state.told.is_some_and(|told| told.elapsed() < MEMORY) {
                return;
            }
            state.told = Some(Moment::now());
        }
        self.change(|known| *known = map);
    }

    /// Changes the map, and reports the slots with a new master: what the old master was told must be repeated to the new one.
    fn change(&self, change: impl FnOnce(&mut Map)) {
        let moved: HashSet<u16> = {
            let mut state = self.state.lock();
            let before = state.map.clone();
            change(&mut state.map);
            let State { map, doubtful, .. } = &mut *state;
            doubtful.retain(|node, _| map.is_master(node));
            let is_moved = |slot: &u16| before.master(*slot).is_some() && before.master(*slot) != map.master(*slot);
            (0..SLOTS).filter(is_moved).collect()
        };
        if !moved.is_empty() {
            self.common.events.on_interruption(&|key| moved.contains(&slot_of(key)));
        }
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topology").field(&format_args!("{}", self.seeds)).finish()
    }
}

#[cfg(test)]
mod tests {
    use redis::{IntoConnectionInfo, Value};

    use super::*;
    use crate::clock::Drift;
    use crate::link::Events;
    use crate::wire::Trust;

    /// A map whose two halves of the slots are on two ports of the host `one`.
    fn map(epoch: u64, first: i64, second: i64) -> Map {
        let node = |port| Value::Array(vec![Value::BulkString(b"one".to_vec()), Value::Int(port)]);
        let range = |from, to, port| Value::Array(vec![Value::Int(from), Value::Int(to), node(port)]);
        let ranges = [range(0, 8191, first), range(8192, 16_383, second)];
        let mut map = Map::read(&Value::Array(ranges.into()), &at(1)).unwrap();
        map.epoch = epoch;
        map
    }

    fn at(port: u16) -> Node {
        Node { host: "one".into(), port }
    }

    fn topology(seeds: &str) -> Arc<Topology> {
        told_to(seeds, Arc::new(()))
    }

    fn told_to(seeds: &str, events: Arc<dyn Events>) -> Arc<Topology> {
        let second = Duration::from_secs(1);
        let seeds = seeds.split(',').map(|host| format!("redis://{host}").into_connection_info().unwrap()).collect();
        let (drift, spawn) = (Drift::DEFAULT, Arc::new(|_| ()));
        let common = Common { drift, command_timeout: second, connect_timeout: second, spawn, events };
        Topology::new(Seeds::new(seeds, &Trust::default()).unwrap(), common)
    }

    #[test]
    fn a_node_that_is_behind_is_not_believed() {
        let topology = topology("one");
        let master = || topology.master(7).map(|(node, _)| node.port);
        topology.learn(map(5, 10, 10));
        topology.learn(map(4, 11, 11));
        assert_eq!(master(), Some(10));
        topology.learn(map(5, 12, 12));
        topology.learn(map(6, 13, 13));
        assert_eq!(master(), Some(13));
    }

    #[test]
    fn a_master_is_doubtful_until_it_is_trusted_again_or_is_none_any_more() {
        let topology = topology("one");
        topology.learn(map(1, 10, 20));
        let doubtful = || [7, 9000].map(|slot| topology.master(slot).unwrap().1.is_some());
        assert_eq!(doubtful(), [false, false]);
        topology.doubt(&at(20));
        assert_eq!(doubtful(), [false, true]);
        topology.trust(&at(20));
        assert_eq!(doubtful(), [false, false]);
        topology.doubt(&at(20));
        topology.learn(map(2, 10, 10));
        topology.learn(map(3, 10, 20));
        assert_eq!(doubtful(), [false, false]);
    }

    /// Which of two keys, one in each half, the last interruption affected.
    #[derive(Default)]
    struct Heard(Mutex<Option<[bool; 2]>>);

    impl Events for Heard {
        fn on_interruption(&self, affects: &dyn Fn(&str) -> bool) {
            *self.0.lock() = Some(["b", "foo"].map(affects));
        }
    }

    #[test]
    fn only_keys_that_have_another_master_now_are_asked_for_again() {
        let heard = Arc::new(Heard::default());
        let topology = told_to("one", Arc::clone(&heard) as Arc<dyn Events>);
        assert_eq!(["b", "foo"].map(|key| slot_of(key) > 8191), [false, true]);
        for (epoch, first, second, affected) in [
            (1, 10, 20, None),
            (2, 10, 20, None),
            (3, 10, 30, Some([false, true])),
            (4, 20, 30, Some([true, false])),
            (5, 40, 50, Some([true, true])),
        ] {
            topology.learn(map(epoch, first, second));
            assert_eq!(heard.0.lock().take(), affected, "{epoch}");
        }
    }

    #[test]
    fn nodes_and_seeds_are_asked_but_not_the_doubtful_while_there_are_others() {
        let topology = topology("one:10,one:20,one:7");
        topology.learn(map(1, 10, 30));
        let witnesses = || topology.witnesses().iter().map(|node| node.port).collect::<Vec<_>>();
        assert_eq!(witnesses(), [10, 30, 20, 7]);
        topology.doubt(&at(30));
        assert_eq!(witnesses(), [10, 20, 7]);
        for port in [10, 20, 7] {
            topology.doubt(&at(port));
        }
        assert_eq!(witnesses(), [10, 30, 20, 7]);
    }

    #[test]
    fn some_of_many_nodes_are_asked_and_others_the_next_time() {
        let seeds: Vec<_> = (1..=20).map(|port| format!("one:{port}")).collect();
        let topology = topology(&seeds.join(","));
        let mut asked = HashSet::new();
        for _ in 0..3 {
            let nodes = topology.witnesses();
            assert_eq!(nodes.len(), NODES_AT_ONCE);
            asked.extend(nodes);
        }
        assert_eq!(asked.len(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn the_nodes_are_asked_by_one_at_a_time_and_not_all_the_time() {
        let topology = topology("one");
        assert!(topology.begin() && !topology.begin());
        tokio::time::advance(PAUSE / 2).await;
        topology.end();
        assert!(!topology.begin());
        tokio::time::advance(PAUSE).await;
        assert!(topology.begin());
    }
}
