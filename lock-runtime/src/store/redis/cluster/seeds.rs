//! [`Seeds`]: the nodes that a URL names, how to reach any other, and what each says of the cluster.

use std::fmt;
use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value};
use tokio::time::timeout;

use super::super::failure::CallError;
use super::super::greeting::{greet, is_tls, with_settings};
use super::map::{Map, Node};

/// Some nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Seeds {
    nodes: Vec<Node>,
    /// The credentials and settings for every node.
    model: ConnectionInfo,
}

impl Seeds {
    /// Reads `[user:password@]host[:port],host[:port],…`, what follows `redis-cluster://`. `scheme` is that of the servers.
    pub(crate) fn read(scheme: &str, rest: &str) -> Option<Self> {
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        // In a password they are written %2F and so on: a part of one must not be read as a host or a port, which errors
        // show.
        if rest.contains(['/', '?', '#']) || credentials.contains(['@', ',']) {
            return None;
        }
        let credentials = rest.split_at(rest.len() - hosts.len()).0;
        let seed = |host: &str| {
            let info = format!("{scheme}://{credentials}{host}").into_connection_info().ok().map(with_settings)?;
            Some((node_of(&info)?, info))
        };
        let mut seeds = hosts.split(',').map(seed).collect::<Option<Vec<_>>>()?;
        let nodes = seeds.iter().map(|(node, _)| node.clone()).collect();
        Some(Self { nodes, model: seeds.pop()?.1 })
    }

    pub(crate) fn is_tls(&self) -> bool {
        is_tls(&self.model)
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn client(&self, node: &Node) -> Result<redis::Client, CallError> {
        let Node { host, port } = node.clone();
        let addr = match self.model.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host.to_string(), port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host.to_string(), port),
        };
        Ok(redis::Client::open(self.model.clone().set_addr(addr))?)
    }

    /// The cluster as a node sees it, by a connection that ends with the answer.
    pub(super) async fn ask(&self, node: &Node, limit: Duration) -> Result<Map, CallError> {
        let asking = async {
            // The caller's limit is the only one.
            let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
            let mut wishes = redis::pipe();
            wishes.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
            let greeted = greet(&self.client(node)?, &config, &wishes).await?;
            greeted.check()?;
            if greeted.hello_field("mode").as_deref() != Some("cluster") {
                let text = "a server without cluster mode answers there: write redis://host:port";
                return Err(CallError::Unsuitable(text.to_owned()));
            }
            let mut answers = greeted.told.into_iter();
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

/// As people write it, without credentials.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes.iter().map(ToString::to_string).collect();
        write!(f, "the cluster of {}", nodes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Option<Seeds> {
        let (scheme, rest) = url.split_once("-cluster://").unwrap();
        Seeds::read(scheme, rest)
    }

    #[test]
    fn a_url_has_hosts_and_perhaps_credentials() {
        let plain = read("redis-cluster://one,two:5,[::1]:7/").unwrap();
        assert_eq!(plain.to_string(), "the cluster of one:6379, two:5, ::1:7");
        let all = read("valkey-cluster://ada:s%40c@one,two").unwrap();
        let redis = all.model.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("ada"), Some("s@c"), 0));
        assert_eq!(all.to_string(), "the cluster of one:6379, two:6379");
    }

    #[test]
    fn what_names_no_host_or_a_database_is_refused() {
        let places = [
            "",
            ",",
            "one,",
            "one,,two",
            "one/0",
            "one/3",
            "one:port",
            "one?db=3",
            "a@b,c@d@",
            "one//",
            "a:1/x@b",
            "a:1#x@b",
            "a:x@b,c:y@d",
        ];
        for place in places {
            assert!(read(&format!("redis-cluster://{place}")).is_none(), "{place}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let seeds = read("redis-cluster://ada:canary@one").unwrap();
        assert!(!seeds.to_string().contains("canary") && !format!("{seeds:?}").contains("canary"));
    }

    #[test]
    fn every_node_is_reached_as_the_seeds_are() {
        let node = Node { host: "other".into(), port: 7 };
        let seeds = read("redis-cluster://ada:canary@one").unwrap();
        let client = seeds.client(&node).unwrap();
        assert!(matches!(client.get_connection_info().addr(), ConnectionAddr::Tcp(host, 7) if host == "other"));
        assert_eq!(client.get_connection_info().redis_settings().password(), Some("canary"));
        assert!(!seeds.is_tls());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn every_node_is_reached_over_tls_when_the_seeds_are() {
        let node = Node { host: "other".into(), port: 7 };
        let seeds = read("rediss-cluster://one").unwrap();
        let client = seeds.client(&node).unwrap();
        let is_tls =
            |addr: &ConnectionAddr| matches!(addr, ConnectionAddr::TcpTls { host, port: 7, .. } if host == "other");
        assert!(seeds.is_tls() && is_tls(client.get_connection_info().addr()));
    }
}
