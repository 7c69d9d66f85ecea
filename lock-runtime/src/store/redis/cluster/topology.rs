//! [`Topology`]: what a manager knows of the cluster, and how it finds out more.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::failure::CallError;
use super::map::{Map, Node, SLOTS, slot_of};
use super::seeds::Seeds;
use crate::clock::Moment;
use crate::store::Events;

/// The nodes are asked for the map at most this often.
const PAUSE: Duration = Duration::from_millis(100);
/// How long others are waited for once a node has answered, when its answer brings nothing new.
const SECOND_OPINION: Duration = Duration::from_millis(25);
/// For so long the map of an older epoch is not believed. Then the newer one may have been forgotten: somebody has set up
/// the cluster anew.
const MEMORY: Duration = Duration::from_secs(10);
/// So many nodes are asked at once.
const MOST: usize = 8;

/// The map of one cluster, and which masters are doubtful: those that a command failed at.
pub(crate) struct Topology {
    seeds: Seeds,
    pub(super) command_timeout: Duration,
    pub(super) connect_timeout: Duration,
    state: Mutex<State>,
    /// An answer came, or the time for one is over.
    asked: Notify,
    /// Where among the nodes the next question begins.
    turn: AtomicUsize,
    events: OnceLock<Weak<dyn Events>>,
}

#[derive(Default)]
struct State {
    map: Map,
    /// When a node last said so.
    told: Option<Moment>,
    doubtful: HashSet<Node>,
    /// When the nodes were last asked for the map, and whether that is over.
    asked: Option<(Moment, bool)>,
}

impl Topology {
    pub(crate) fn new(seeds: Seeds, command_timeout: Duration, connect_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            command_timeout,
            connect_timeout,
            state: Mutex::default(),
            asked: Notify::new(),
            turn: AtomicUsize::new(0),
            events: OnceLock::new(),
        })
    }

    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        // By both of a manager's stores, for the same engine.
        let _ = self.events.set(events);
    }

    pub(super) fn client(&self, node: &Node) -> Result<redis::Client, CallError> {
        self.seeds.client(node)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot's master, and whether it is doubtful.
    pub(super) fn master(&self, slot: u16) -> Option<(Node, bool)> {
        let state = self.locked();
        let master = state.map.master(slot)?;
        Some((master.clone(), !state.doubtful.is_empty() && state.doubtful.contains(master)))
    }

    /// A number for the master of the key's slot.
    pub(super) fn index(&self, key: &str) -> usize {
        self.locked().map.index(slot_of(key))
    }

    pub(super) fn lives_at(&self, key: &str, node: &Node) -> bool {
        self.locked().map.master(slot_of(key)) == Some(node)
    }

    pub(super) fn is_master(&self, node: &Node) -> bool {
        self.locked().map.is_master(node)
    }

    pub(super) fn doubt(&self, node: &Node) {
        self.locked().doubtful.insert(node.clone());
    }

    pub(super) fn trust(&self, node: &Node) {
        self.locked().doubtful.remove(node);
    }

    /// A node said who the slot's master is now. Most likely it is not the only slot that has moved, and the new master
    /// knows of the others.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: &Node) {
        self.change(|map| map.assign(slot, to.clone()));
        if self.begin() {
            let (topology, to) = (Arc::clone(self), to.clone());
            tokio::spawn(async move {
                if let Ok(map) = topology.seeds.ask(&to, topology.command_timeout).await {
                    topology.learn(map);
                }
                topology.end();
            });
        }
    }

    /// Asks the nodes for the map, all at once.
    pub(super) async fn load(&self) -> Result<(), CallError> {
        let map = self.ask(self.seeds.nodes().to_vec(), self.connect_timeout, |_| true).await?;
        self.learn(map);
        Ok(())
    }

    /// Asks the nodes that are not doubtful who the master of `slot` is, unless that was asked a moment ago.
    pub(super) async fn look_for(&self, slot: u16, limit: Duration) {
        let limit = limit.min(self.command_timeout / 2);
        if !self.begin() {
            let asked = self.asked.notified();
            if self.locked().asked.is_some_and(|(_, is_over)| !is_over) {
                let _ = timeout(limit.min(PAUSE), asked).await;
            }
            return;
        }
        let before = self.locked().map.clone();
        let is_news = |map: &Map| {
            let master = map.master(slot);
            map.epoch >= before.epoch && master.is_some() && master != before.master(slot)
        };
        if let Ok(map) = self.ask(self.witnesses(), limit, is_news).await {
            self.learn(map);
        }
        self.end();
    }

    /// Whether it is time to ask: not while others do, or just have. Whoever asks may be dropped or stand still, so the
    /// next one does not wait for the end.
    fn begin(&self) -> bool {
        let mut state = self.locked();
        if state.asked.is_some_and(|(at, _)| at.elapsed() < PAUSE) {
            return false;
        }
        state.asked = Some((Moment::now(), false));
        true
    }

    fn end(&self) {
        if let Some((_, is_over)) = &mut self.locked().asked {
            *is_over = true;
        }
        self.asked.notify_waiters();
    }

    /// Who to ask: not those who do not answer, unless there are no others.
    fn witnesses(&self) -> Vec<Node> {
        let state = self.locked();
        let mut nodes: Vec<Node> = state.map.nodes().cloned().collect();
        for seed in self.seeds.nodes() {
            if !nodes.contains(seed) {
                nodes.push(seed.clone());
            }
        }
        if nodes.iter().any(|node| !state.doubtful.contains(node)) {
            nodes.retain(|node| !state.doubtful.contains(node));
        }
        drop(state);
        if nodes.len() > MOST {
            let turn = self.turn.fetch_add(MOST, Ordering::Relaxed) % nodes.len();
            nodes.rotate_left(turn);
            nodes.truncate(MOST);
        }
        nodes
    }

    /// The first answer that `is_news`, or the last of those that come soon after any.
    async fn ask(&self, nodes: Vec<Node>, limit: Duration, is_news: impl Fn(&Map) -> bool) -> Result<Map, CallError> {
        // Tasks, so that they end with this value.
        let mut asked = JoinSet::new();
        for node in nodes {
            let seeds = self.seeds.clone();
            asked.spawn(async move { seeds.ask(&node, limit).await });
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

    /// Takes over what a node says, unless it is behind: it may name an old master that still takes writes.
    fn learn(&self, map: Map) {
        {
            let mut state = self.locked();
            if map.epoch < state.map.epoch && state.told.is_some_and(|told| told.elapsed() < MEMORY) {
                return;
            }
            state.told = Some(Moment::now());
        }
        self.change(|known| *known = map);
    }

    /// Changes the map, and tells of the slots that have another master now: what is held there has to be verified, and
    /// what is waited for asked for at the new one.
    fn change(&self, change: impl FnOnce(&mut Map)) {
        let moved: HashSet<u16> = {
            let mut state = self.locked();
            let before = state.map.clone();
            change(&mut state.map);
            let State { map, doubtful, .. } = &mut *state;
            doubtful.retain(|node| map.is_master(node));
            let is_moved = |slot: &u16| before.master(*slot).is_some() && before.master(*slot) != map.master(*slot);
            (0..SLOTS).filter(is_moved).collect()
        };
        if !moved.is_empty()
            && let Some(events) = self.events.get().and_then(Weak::upgrade)
        {
            events.interrupted(&|key| moved.contains(&slot_of(key)));
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
    use redis::Value;

    use super::*;

    fn map(epoch: u64, port: i64) -> Map {
        let node = Value::Array(vec![Value::BulkString(b"one".to_vec()), Value::Int(port)]);
        let range = Value::Array(vec![Value::Int(0), Value::Int(16_383), node]);
        let of = Node { host: "one".into(), port: 1 };
        let mut map = Map::read(&Value::Array(vec![range]), &of).unwrap();
        map.epoch = epoch;
        map
    }

    #[test]
    fn a_node_that_is_behind_is_not_believed() {
        let seeds = Seeds::read("redis", "one").unwrap();
        let topology = Topology::new(seeds, Duration::from_secs(1), Duration::from_secs(1));
        let master = || topology.master(7).map(|(node, _)| node.port);
        topology.learn(map(5, 10));
        topology.learn(map(4, 11));
        assert_eq!(master(), Some(10));
        topology.learn(map(5, 12));
        topology.learn(map(6, 13));
        assert_eq!(master(), Some(13));
    }
}
