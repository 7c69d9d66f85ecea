//! [`Servers`]: the connections, and which of them a command takes.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::cluster::Cluster;
use super::failure::CallError;
use super::link::{Called, Link, Outgoing};
use crate::clock::Deadline;
use crate::store::StoreError;

/// One server for all locks, or the masters of a cluster.
#[derive(Clone)]
pub(crate) enum Servers {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

impl From<Arc<Link>> for Servers {
    fn from(link: Arc<Link>) -> Self {
        Self::One(link)
    }
}

impl Servers {
    pub(super) async fn connect(&self) -> Result<(), CallError> {
        match self {
            Self::One(link) => link.connect().await.map(drop),
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Sends a command about `key` to the server that has the key. The command is made for each server that is tried: each
    /// server has its own clock.
    pub(super) fn call<'a>(
        &'a self,
        key: &'a str,
        command: impl Fn(&Link) -> Outgoing + Send + Sync + 'a,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Called, CallError>> {
        match self {
            Self::One(link) => link.call(command, deadline),
            Self::Cluster(cluster) => Box::pin(async move { cluster.call(key, &command, deadline).await }),
        }
    }

    /// The failure of a command, with the name of the server in its text.
    pub(super) fn name_failure(&self, error: CallError) -> StoreError {
        let error = StoreError::from(error);
        match self {
            Self::One(link) => link.name(error),
            // The route names the master.
            Self::Cluster(_) => error,
        }
    }

    /// As [`name_failure`](Self::name_failure), for an error that no route has named.
    pub(super) fn failure_of(&self, link: &Link, error: CallError) -> StoreError {
        match self {
            Self::One(_) => self.name_failure(error),
            Self::Cluster(_) => error.of(link.server()).into(),
        }
    }

    /// Looks at the link to the server of `key`; `None` when there is none.
    pub(super) fn at<T>(&self, key: &str, look: impl FnOnce(&Arc<Link>) -> T) -> Option<T> {
        match self {
            Self::One(link) => Some(look(link)),
            Self::Cluster(cluster) => cluster.link_of(key).as_ref().map(look),
        }
    }

    /// Whether each lock needs a command of its own.
    pub(super) fn are_many(&self) -> bool {
        match self {
            Self::One(link) => link.has_slots(),
            Self::Cluster(_) => true,
        }
    }

    /// A link to each server, also to those that were not used yet.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Cluster(cluster) => cluster.to_all_masters(),
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(link) => link.fmt(f),
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}
