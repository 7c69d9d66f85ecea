//! [`Map`]: which master serves which hash slot.

use std::fmt;
use std::sync::Arc;

use redis::{FromRedisValue, Value};

use crate::hash_slot::SLOTS;
use crate::wire::{integer, text};

/// The address of a cluster node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Node {
    /// Reads `host:port`. An empty host means the host of the node that sent the address.
    pub(super) fn read(address: &str, of: &Self) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Self::named(host, port.parse().ok()?, of)
    }

    fn named(host: &str, port: u16, of: &Self) -> Option<Self> {
        // A node sends these when it does not know its own address, or has no name to announce.
        let host = if matches!(host, "" | "?") { Arc::clone(&of.host) } else { host.into() };
        (port > 0).then_some(Self { host, port })
    }

    fn of_value(value: &Value, of: &Self) -> Option<Self> {
        let Value::Array(fields) = value else { return None };
        let [host, port, ..] = fields.as_slice() else { return None };
        let host = if *host == Value::Nil { String::new() } else { text(host.clone())? };
        Self::named(&host, integer(port)?.try_into().ok()?, of)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The masters and their slots, as one node sees them.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    /// Grows with each failover and each slot that moves. A node that missed the last change sends a map with an older epoch.
    pub(super) epoch: u64,
    nodes: Vec<Node>,
    /// For each slot the index of its master in `nodes` plus one; 0 when no master serves the slot.
    masters: Vec<u16>,
}

impl Map {
    /// Reads the reply to `CLUSTER SLOTS` of the node `of`; `None` when it is not a map, or is empty.
    pub(super) fn read(value: &Value, of: &Node) -> Option<Self> {
        let Value::Array(ranges) = value else { return None };
        let mut map = Self { masters: vec![0; usize::from(SLOTS)], ..Self::default() };
        for range in ranges {
            let Value::Array(fields) = range else { return None };
            let [first, last, master, replicas @ ..] = fields.as_slice() else { return None };
            let place = map.place(Node::of_value(master, of)?)?;
            for replica in replicas.iter().filter_map(|replica| Node::of_value(replica, of)) {
                map.place(replica)?;
            }
            let (first, last) = (usize::try_from(integer(first)?).ok()?, usize::try_from(integer(last)?).ok()?);
            map.masters.get_mut(first..=last)?.fill(place);
        }
        (!ranges.is_empty()).then_some(map)
    }

    /// Adds the epoch from the reply to `CLUSTER INFO`; 0 when the reply has none.
    pub(super) fn of_epoch(mut self, info: Value) -> Self {
        let info = String::from_redis_value(info).unwrap_or_default();
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        self.epoch = epoch.and_then(|epoch| epoch.trim().parse().ok()).unwrap_or_default();
        self
    }

    /// The node's index plus one; adds a node that is new.
    fn place(&mut self, node: Node) -> Option<u16> {
        let place = self.nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        u16::try_from(place + 1).ok()
    }

    pub(super) fn master(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(self.index(slot).checked_sub(1)?)
    }

    /// A number that identifies the slot's master.
    pub(super) fn index(&self, slot: u16) -> usize {
        self.masters.get(usize::from(slot)).copied().unwrap_or_default().into()
    }

    pub(super) fn assign(&mut self, slot: u16, node: Node) {
        if let Some(place) = self.place(node)
            && let Some(master) = self.masters.get_mut(usize::from(slot))
        {
            *master = place;
        }
    }

    /// Masters and replicas.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(super) fn is_master(&self, node: &Node) -> bool {
        let place = self.nodes.iter().position(|known| known == node);
        place.and_then(|place| u16::try_from(place + 1).ok()).is_some_and(|place| self.masters.contains(&place))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::value;

    fn asked() -> Node {
        Node { host: "asked".into(), port: 1 }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    fn named(host: &str) -> Value {
        Value::BulkString(host.as_bytes().to_vec())
    }

    #[test]
    fn a_node_without_a_name_is_where_it_was_asked() {
        let range = |first, last, master| Value::Array(vec![Value::Int(first), Value::Int(last), master]);
        let ranges = [
            range(0, 99, node(named("a"), 7)),
            range(100, 100, node(Value::Nil, 8)),
            range(200, 16_383, node(named("?"), 9)),
        ];
        let map = Map::read(&Value::Array(ranges.to_vec()), &asked()).unwrap();
        let at = |slot| map.master(slot).map(ToString::to_string);
        assert_eq!(at(99).as_deref(), Some("a:7"));
        assert_eq!(at(100).as_deref(), Some("asked:8"));
        assert_eq!(at(150), None);
        assert_eq!(at(16_383).as_deref(), Some("asked:9"));
        assert_eq!(at(16_384), None);
    }

    #[test]
    fn a_master_is_one_that_serves_a_slot() {
        let [one, two, replica] = ["one", "two", "replica"].map(|host| Node { host: host.into(), port: 7 });
        let range = [Value::Int(0), Value::Int(16_383), node(named("one"), 7), node(named("replica"), 7)];
        let mut map = Map::read(&Value::Array(vec![Value::Array(range.into())]), &asked()).unwrap();
        assert_eq!([&one, &two, &replica].map(|node| map.is_master(node)), [true, false, false]);
        map.assign(3, two.clone());
        assert_eq!((map.master(3), map.master(4)), (Some(&two), Some(&one)));
        assert_eq!([&one, &two, &replica].map(|node| map.is_master(node)), [true, true, false]);
        assert_eq!(map.nodes().collect::<Vec<_>>(), [&one, &replica, &two]);
    }

    #[test]
    fn the_epoch_is_read_from_what_a_node_says_of_itself() {
        let info = named("cluster_state:ok\r\ncluster_current_epoch:17\r\ncluster_my_epoch:3\r\n");
        assert_eq!(Map::default().of_epoch(info).epoch, 17);
        assert_eq!(Map::default().of_epoch(Value::Nil).epoch, 0);
    }

    #[test]
    fn a_redirection_may_leave_out_the_host_and_may_name_one_with_colons() {
        let read = |address| Node::read(address, &asked()).map(|node| node.to_string());
        assert_eq!(read(":7").as_deref(), Some("asked:7"));
        assert_eq!(read("::1:7").as_deref(), Some("::1:7"));
        assert_eq!(read("a:0"), None);
        assert_eq!(read("a"), None);
    }

    fn shaped() -> impl Strategy<Value = Value> {
        let number = || prop_oneof![-2..20_000_i64, any::<i64>()];
        let host = prop_oneof![Just(Value::Nil), ".{0,9}".prop_map(|host| named(&host)), value()];
        let node = (host, number()).prop_map(|(host, port)| node(host, port));
        let range = (number(), number(), prop::collection::vec(node, 0..3))
            .prop_map(|(first, last, nodes)| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat()));
        prop::collection::vec(range, 0..4).prop_map(Value::Array)
    }

    proptest! {
        #[test]
        fn no_reply_makes_it_panic(value in prop_oneof![value(), shaped()], slot: u16, address in ".*|[a-z]*:[0-9]*") {
            if let Some(mut map) = Map::read(&value, &asked()) {
                prop_assert_eq!(map.master(slot).is_some(), map.index(slot) > 0);
                map.assign(slot, asked());
                prop_assert_eq!(map.is_master(&asked()) || slot >= SLOTS, true);
            }
            let _ = Node::read(&address, &asked());
            let _ = Map::default().of_epoch(value);
        }
    }
}
