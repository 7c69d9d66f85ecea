//! [`Servers`]: the connections, and which of them a command uses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;

use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::failure::CallError;
use crate::link::{Called, Command, Link, Outgoing, Status};

/// One server for all keys, or the masters of a cluster.
#[derive(Clone)]
pub enum Servers {
    /// One server at a time.
    One(Arc<Link>),
    /// Each key lives on one of the masters.
    Cluster(Arc<Cluster>),
}

impl From<Arc<Link>> for Servers {
    fn from(link: Arc<Link>) -> Self {
        Self::One(link)
    }
}

impl Servers {
    /// Connects; in a cluster, fetches the map of the masters.
    pub async fn connect(&self) -> Result<(), CallError> {
        match self {
            Self::One(link) => link.connect().await.map(drop),
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Sends a command about `key` to the server that has the key. The command is made for each server that is tried, because each has its
    /// own clock.
    pub fn call<'a, C: Command + 'a>(
        &'a self,
        key: &'a str,
        command: impl Fn(&Link) -> Outgoing<C> + Send + Sync + 'a,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Called, CallError>> + Send + 'a {
        match self {
            Self::One(link) => Either::Left(link.call(command, deadline)),
            Self::Cluster(cluster) => {
                Either::Right(Box::pin(async move { cluster.call(key, &command, deadline).await }))
            }
        }
    }

    /// The link to the one server; `None` in a cluster.
    #[inline]
    pub fn one(&self) -> Option<&Arc<Link>> {
        match self {
            Self::One(link) => Some(link),
            Self::Cluster(_) => None,
        }
    }

    /// Calls `look` with the link to the server of `key`; `None` when there is no link.
    #[inline]
    pub fn at<T>(&self, key: &str, look: impl FnOnce(&Arc<Link>) -> T) -> Option<T> {
        match self {
            Self::One(link) => Some(look(link)),
            Self::Cluster(cluster) => cluster.link_of(key).as_ref().map(look),
        }
    }

    /// Whether each key needs its own command.
    #[inline]
    pub fn are_many(&self) -> bool {
        match self {
            Self::One(link) => link.has_slots(),
            Self::Cluster(_) => true,
        }
    }

    /// A link to each server, including those not used yet.
    pub fn links(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Cluster(cluster) => cluster.to_all_masters(),
        }
    }

    /// Sends a heartbeat on each connection.
    pub async fn heartbeat(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.heartbeat(deadline).await,
            Self::Cluster(cluster) => cluster.heartbeat(deadline).await,
        }
    }

    /// Replaces broken connections.
    pub async fn connect_again(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.connect_again(deadline).await,
            Self::Cluster(cluster) => cluster.connect_again(deadline).await,
        }
    }

    /// Starts to reconnect where there is no connection, without waiting. Must be called inside a runtime.
    pub fn begin_to_connect(&self) {
        match self {
            Self::One(link) => link.begin_to_connect(),
            Self::Cluster(cluster) => cluster.begin_to_connect(),
        }
    }

    /// Whether the servers could be asked at once, as far as is known.
    pub fn is_connected(&self) -> bool {
        match self {
            Self::One(link) => link.is_connected(),
            Self::Cluster(cluster) => cluster.is_connected(),
        }
    }

    /// The connection to the server of `key`; `None` for a master of a cluster that was not used yet. It connects on first use.
    #[inline]
    pub fn status(&self, key: &str) -> Option<Status> {
        match self {
            Self::One(link) => Some(link.status()),
            Self::Cluster(cluster) => cluster.link_of(key).filter(|link| link.was_used()).map(|link| link.status()),
        }
    }

    /// How long the most distant server takes to answer, as far as is known.
    #[inline]
    pub fn round_trip(&self) -> Duration {
        match self {
            Self::One(link) => link.round_trip(),
            Self::Cluster(cluster) => cluster.round_trip(),
        }
    }

    /// How long an answer now takes to reach its task because many are in flight. Zero while few are.
    pub fn lag(&self) -> Duration {
        match self {
            Self::One(link) => link.lag(),
            Self::Cluster(cluster) => cluster.lag(),
        }
    }

    /// Probes the runtimes that read pushes. Returns whether one of them has not answered the last probe yet.
    pub fn probe_reader(&self) -> bool {
        match self {
            Self::One(link) => link.probe_reader(),
            Self::Cluster(cluster) => cluster.probe_reader(),
        }
    }

    /// The number of the server that has `key`.
    pub fn server_of(&self, key: &str) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.server_of(key),
        }
    }

    /// The address of the server that has `key`, for messages.
    pub fn server_name(&self, key: &str) -> String {
        match self {
            Self::One(link) => link.server().to_owned(),
            Self::Cluster(cluster) => cluster.server_name(key),
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
