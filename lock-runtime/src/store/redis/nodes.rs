//! [`Node`]: one server by itself, for tools that look at servers and not at locks.

use std::sync::Arc;

use redis::Value;

use super::RedisStore;
use super::link::Link;
use crate::clock::Deadline;
use crate::store::StoreError;

/// A server that has locks.
#[derive(Clone)]
pub(crate) struct Node(Arc<Link>);

impl Node {
    pub(crate) fn address(&self) -> &str {
        self.0.server()
    }

    pub(crate) async fn ask(&self, words: &[&str], deadline: Deadline) -> Result<Value, StoreError> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let mut called = self.0.call(command, deadline).await.map_err(StoreError::from)?;
        Ok(called.take_value())
    }
}

impl RedisStore {
    /// The server, or each master of a cluster.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.servers.links().into_iter().map(Node).collect()
    }
}
