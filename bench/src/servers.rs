//! [`Servers`]: the servers with the locks of a case, one server or the masters of a cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::Usage;
use crate::server::{Calls, Hanging, Server, free_port};

/// All hash slots; the masters have equal ranges of them, in order.
pub(crate) const SLOTS: usize = 16_384;
/// The longest time until all nodes of a cluster agree.
const PATIENCE: Duration = Duration::from_secs(30);

/// Servers that are measured as one; they end with this value.
#[derive(Debug)]
pub(crate) struct Servers {
    nodes: Vec<Server>,
    url: String,
}

impl Servers {
    /// A single server.
    pub(crate) fn one(program: &Path) -> Result<Self, String> {
        let server = Server::start(program, &[])?;
        let url = format!("redis://{}", server.address());
        Ok(Self { nodes: vec![server], url })
    }

    /// A cluster of this many masters, without replicas.
    pub(crate) fn masters(program: &Path, count: usize) -> Result<Self, String> {
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let bus = free_port()?.to_string();
            // While one master hangs, the others continue.
            let options = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-port", &bus];
            nodes.push(Server::start(program, &options)?);
            buses.push(bus);
        }
        let addresses: Vec<_> = nodes.iter().map(Server::address).collect();
        for (index, node) in nodes.iter().enumerate() {
            let (first, end) = (first_slot(index, count), first_slot(index + 1, count));
            node.ask::<()>(redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(end - 1))?;
            node.ask::<()>(redis::cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(index + 1))?;
            for (address, bus) in addresses.iter().zip(&buses).take(index) {
                let (host, port) = address.split_once(':').unwrap_or_default();
                node.ask::<()>(redis::cmd("CLUSTER").arg("MEET").arg(host).arg(port).arg(bus))?;
            }
        }
        let cluster = Self { nodes, url: format!("redis-cluster://{}", addresses.join(",")) };
        let patience = Instant::now() + PATIENCE;
        while !cluster.is_settled()? {
            if Instant::now() > patience {
                return Err(format!("the cluster of {count} masters does not settle"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(cluster)
    }

    /// Whether every node knows all others and their slots.
    fn is_settled(&self) -> Result<bool, String> {
        let wanted = [
            "cluster_state:ok".to_owned(),
            format!("cluster_slots_assigned:{SLOTS}"),
            format!("cluster_size:{}", self.nodes.len()),
        ];
        for node in &self.nodes {
            let info: String = node.ask(redis::cmd("CLUSTER").arg("INFO"))?;
            if !wanted.iter().all(|wanted| info.lines().any(|line| line == wanted)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn version(&self) -> String {
        self.nodes.first().map(Server::version).unwrap_or_default()
    }

    /// Empties them, and disconnects the clients that the last contestant left behind.
    pub(crate) fn clear(&self) -> Result<(), String> {
        self.nodes.iter().try_for_each(Server::clear)
    }

    pub(crate) fn reset_counts(&self) -> Result<(), String> {
        self.nodes.iter().try_for_each(Server::reset_counts)
    }

    /// The calls of each server by command, including those that scripts made.
    pub(crate) fn calls(&self) -> Result<Vec<BTreeMap<String, Calls>>, String> {
        self.nodes.iter().map(Server::calls).collect()
    }

    /// The resources that all of them have used so far.
    pub(crate) fn usage(&self) -> Usage {
        self.nodes.iter().map(Server::usage).sum()
    }

    pub(crate) fn pin(&self, pinned: bool) {
        self.nodes.iter().for_each(|node| node.pin(pinned));
    }

    /// Makes the last one hang until the value is dropped.
    pub(crate) fn hang(&self) -> Result<Hanging, String> {
        self.nodes.last().ok_or("there is no server")?.hang()
    }
}

/// The first slot of a master, in a cluster of this many.
fn first_slot(index: usize, masters: usize) -> usize {
    SLOTS * index / masters
}

/// Whether a lock of this name is on the last of this many masters.
pub(crate) fn is_on_last(name: &str, masters: usize) -> bool {
    let slot = usize::from(crc16::State::<crc16::XMODEM>::calculate(name.as_bytes())) % SLOTS;
    slot >= first_slot(masters - 1, masters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masters_have_all_slots_in_equal_parts() {
        assert_eq!([0, 1, 2, 3].map(|index| first_slot(index, 3)), [0, 5461, 10_922, SLOTS]);
        // By `CLUSTER KEYSLOT`: 12,182 and 866.
        assert!(is_on_last("foo", 3) && !is_on_last("hello", 3));
    }
}
