//! [`Cluster`]: nodes that share one keyspace. Each slot has one master among them, and a write on one node is on all nodes at once.

use std::collections::BTreeMap;

use crate::{Client, Reply};

const SLOTS: u16 = 16_384;

/// Nodes that redirect commands to each other.
#[derive(Default)]
pub(crate) struct Cluster {
    nodes: usize,
    /// The masters of the moved slots; the first node has all other slots.
    masters: BTreeMap<u16, usize>,
    /// The epoch, which grows with each move.
    epoch: u64,
    /// The node that each client is connected to.
    clients: BTreeMap<Client, usize>,
    /// The node that executes a command.
    pub(crate) current: usize,
}

/// The host of all nodes. A node's port is its number plus one.
const HOST: &str = "node";

impl Cluster {
    pub(crate) fn set_nodes(&mut self, nodes: usize) {
        self.nodes = nodes;
    }

    pub(crate) fn is_one(&self) -> bool {
        self.nodes > 0
    }

    pub(crate) fn connect(&mut self, client: Client, node: usize) {
        self.clients.insert(client, node);
    }

    pub(crate) fn disconnect(&mut self, client: Client) {
        self.clients.remove(&client);
    }

    pub(crate) fn node_of(&self, client: Client) -> usize {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    fn master(&self, slot: u16) -> usize {
        self.masters.get(&slot).copied().unwrap_or_default()
    }

    /// Returns the node that was the slot's master.
    pub(crate) fn move_slot(&mut self, slot: u16, to: usize) -> usize {
        let from = self.master(slot);
        self.masters.insert(slot, to);
        self.epoch += 1;
        from
    }

    /// The redirection or error if the current node does not execute a command on this key or sharded channel.
    pub(crate) fn redirect(&self, key: &[u8]) -> Option<Reply> {
        let slot = slot_of(key);
        let master = self.master(slot);
        let is_elsewhere = self.is_one() && master != self.current;
        is_elsewhere.then(|| Reply::error(format!("MOVED {slot} {HOST}:{}", master + 1)))
    }

    pub(crate) fn tell(&self, arguments: &[&[u8]]) -> Reply {
        let what = arguments.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        match what.as_slice() {
            b"MYID" => Reply::bulk(id(self.current)),
            b"INFO" => Reply::bulk(format!("cluster_current_epoch:{}\r\n", self.epoch)),
            b"SLOTS" => self.slots(),
            _ => Reply::error("ERR unknown subcommand"),
        }
    }

    fn slots(&self) -> Reply {
        let mut ranges: Vec<(u16, u16, usize)> = Vec::new();
        for slot in 0..SLOTS {
            let master = self.master(slot);
            match ranges.last_mut() {
                Some((_, last, node)) if *node == master => *last = slot,
                _ => ranges.push((slot, slot, master)),
            }
        }
        let range = |(first, last, node): (u16, u16, usize)| {
            let address = vec![Reply::bulk(HOST), Reply::count(node + 1), Reply::bulk(id(node))];
            Reply::Array(vec![Reply::Integer(first.into()), Reply::Integer(last.into()), Reply::Array(address)])
        };
        Reply::Array(ranges.into_iter().map(range).collect())
    }
}

fn id(node: usize) -> String {
    format!("{node:016x}{:024}", 0)
}

/// The slot of a key or a sharded channel; only the part in braces counts, if there are any.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0)?;
        rest.get(..close)
    });
    let mut checksum: u16 = 0;
    for byte in tag.unwrap_or(key) {
        checksum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            checksum = if checksum & 0x8000 == 0 { checksum << 1 } else { (checksum << 1) ^ 0x1021 };
        }
    }
    checksum % SLOTS
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(
            [slot_of(b"123456789"), slot_of(b"foo"), slot_of(b"x{foo}y"), slot_of(b"{}")],
            [0x31C3, 12_182, 12_182, 15_257]
        );
    }
}
