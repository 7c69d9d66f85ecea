//! [`Seeds`]: the nodes that a URL lists, how to connect to any other node, and how to fetch a node's view of the cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, Value};
use tokio::time::timeout;

use super::map::{Map, Node};
use crate::endpoint::Endpoint;
use crate::failure::CallError;
use crate::greeting::OnFailover;
use crate::wire::{Peer, Trust};

/// Some nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Seeds {
    nodes: Vec<Node>,
    /// The credentials and settings for every node.
    model: Peer,
}

impl Seeds {
    /// The nodes at these addresses, which share their credentials. `None` when the list is empty, or an address is not on a network.
    pub fn new(addresses: Vec<ConnectionInfo>, trust: &Trust) -> Option<Self> {
        let nodes = addresses.iter().map(node_of).collect::<Option<_>>()?;
        Some(Self { nodes, model: Peer::new(addresses.into_iter().next_back()?, trust.clone()) })
    }

    /// The nodes of a simulated cluster, as a process sees them. The first node has port 1.
    #[cfg(feature = "simulation")]
    pub fn simulated(host: Arc<dyn crate::simulation::Host>, addresses: Vec<ConnectionInfo>) -> Option<Self> {
        let seeds = Self::new(addresses, &Trust::default())?;
        Some(Self { model: seeds.model.simulated(host), ..seeds })
    }

    /// How to connect to a node.
    pub(super) fn endpoint(&self, node: &Node) -> Endpoint {
        Endpoint::Node(Box::new(self.model.at(node.host.to_string(), node.port)))
    }

    /// Whether the nodes speak TLS.
    pub fn is_tls(&self) -> bool {
        self.model.is_tls()
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node's view of the cluster, over a connection that ends with the answer.
    pub(super) async fn fetch_map(&self, node: &Node, limit: Duration) -> Result<Map, CallError> {
        let asking = async {
            let mut commands = redis::pipe();
            commands.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
            let nothing_moves: OnFailover = Arc::new(|| {});
            let greeted = self.endpoint(node).connect((), &commands, limit, &nothing_moves).await?;
            greeted.check()?;
            if greeted.hello_field("mode").as_deref() != Some("cluster") {
                let text = "a server without cluster mode answers there: write redis://host:port";
                return Err(CallError::Unsuitable(text.to_owned()));
            }
            let mut answers = greeted.replies.into_iter();
            let (slots, info) = (answers.next().unwrap_or(Value::Nil), answers.next().unwrap_or(Value::Nil));
            let slots = slots.extract_error().map_err(|error| match error.code() {
                Some("NOPERM") => CallError::Unsuitable("its user lacks +cluster|slots".to_owned()),
                _ => error.into(),
            })?;
            let nothing = || CallError::Unsuitable("it knows of no master that serves any slot".to_owned());
            Ok(Map::read(&slots, node).ok_or_else(nothing)?.of_epoch(info))
        };
        let asked = timeout(limit, asking).await.unwrap_or(Err(CallError::NoConnection(limit)));
        asked.map_err(|error| error.of(&format!("the node {node}")))
    }
}

fn node_of(info: &ConnectionInfo) -> Option<Node> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Node { host: host.as_str().into(), port: *port })
        }
        _ => None,
    }
}

/// The cluster for messages, without credentials.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes.iter().map(ToString::to_string).collect();
        write!(f, "the cluster of {}", nodes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    fn seeds(url: &str) -> Seeds {
        Seeds::new(vec![url.into_connection_info().unwrap()], &Trust::default()).unwrap()
    }

    fn other(seeds: &Seeds) -> Peer {
        match seeds.endpoint(&Node { host: "other".into(), port: 7 }) {
            Endpoint::Node(peer) => *peer,
            _ => unreachable!("it is a node"),
        }
    }

    #[test]
    fn every_node_is_reached_as_the_seeds_are() {
        let seeds = seeds("redis://ada:canary@one");
        let peer = other(&seeds);
        assert!(matches!(peer.addr(), ConnectionAddr::Tcp(host, 7) if host == "other"));
        assert_eq!(peer.settings().password(), Some("canary"));
        assert!(!seeds.is_tls());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn every_node_is_reached_over_tls_when_the_seeds_are() {
        let seeds = seeds("rediss://one");
        assert!(matches!(other(&seeds).addr(), ConnectionAddr::TcpTls { host, port: 7, .. } if host == "other"));
        assert!(seeds.is_tls());
    }
}
