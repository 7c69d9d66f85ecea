//! [`Seeds`]: the nodes that a URL names, how to reach any other node, and what each node says about the cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Value};
use tokio::time::timeout;

use super::super::endpoint::Endpoint;
use super::super::failure::CallError;
use super::super::greeting::{OnFailover, is_tls, with_settings};
use super::map::{Map, Node};

/// Some nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Seeds {
    nodes: Vec<Node>,
    /// The credentials and settings for every node.
    model: ConnectionInfo,
    #[cfg(test)]
    simulated: Option<crate::simulation::Host>,
}

impl Seeds {
    /// The nodes at these addresses. They share their credentials. `None` when there is no node, or an address is not on a
    /// network.
    pub(crate) fn new(addresses: Vec<ConnectionInfo>) -> Option<Self> {
        let nodes = addresses.iter().map(node_of).collect::<Option<_>>()?;
        Some(Self {
            nodes,
            model: addresses.into_iter().map(with_settings).next_back()?,
            #[cfg(test)]
            simulated: None,
        })
    }

    /// The nodes of a simulated cluster, as a process sees them.
    #[cfg(test)]
    pub(crate) fn simulated(host: &crate::simulation::Host, addresses: Vec<ConnectionInfo>) -> Option<Self> {
        Some(Self { simulated: Some(host.clone()), ..Self::new(addresses)? })
    }

    /// How to connect to a node.
    pub(super) fn endpoint(&self, node: &Node) -> Result<Endpoint, CallError> {
        #[cfg(test)]
        if let Some(host) = &self.simulated {
            return Ok(Endpoint::Simulated(host.to_node(usize::from(node.port - 1))));
        }
        Ok(Endpoint::Node(Box::new(self.client(node)?)))
    }

    pub(crate) fn is_tls(&self) -> bool {
        is_tls(&self.model)
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn client(&self, node: &Node) -> Result<redis::Client, CallError> {
        let Node { host, port } = node.clone();
        let addr = match self.model.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host.to_string(), port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host.to_string(), port),
        };
        Ok(redis::Client::open(self.model.clone().set_addr(addr))?)
    }

    /// The cluster as one node sees it, over a connection that ends with the answer.
    pub(super) async fn ask(&self, node: &Node, limit: Duration) -> Result<Map, CallError> {
        let asking = async {
            // The caller has its own limit.
            let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
            let mut commands = redis::pipe();
            commands.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
            let nothing_moves: OnFailover = Arc::new(|| {});
            let mut greeted = self.endpoint(node)?.connect(config, &commands, limit, &nothing_moves).await?;
            greeted.check().await?;
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

/// The cluster as people write it, without credentials.
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
        Seeds::new(vec![url.into_connection_info().unwrap()]).unwrap()
    }

    #[test]
    fn every_node_is_reached_as_the_seeds_are() {
        let node = Node { host: "other".into(), port: 7 };
        let seeds = seeds("redis://ada:canary@one");
        let client = seeds.client(&node).unwrap();
        assert!(matches!(client.get_connection_info().addr(), ConnectionAddr::Tcp(host, 7) if host == "other"));
        assert_eq!(client.get_connection_info().redis_settings().password(), Some("canary"));
        assert!(!seeds.is_tls());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn every_node_is_reached_over_tls_when_the_seeds_are() {
        let node = Node { host: "other".into(), port: 7 };
        let seeds = seeds("rediss://one");
        let client = seeds.client(&node).unwrap();
        let is_tls =
            |addr: &ConnectionAddr| matches!(addr, ConnectionAddr::TcpTls { host, port: 7, .. } if host == "other");
        assert!(seeds.is_tls() && is_tls(client.get_connection_info().addr()));
    }
}
