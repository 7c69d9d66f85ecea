//! [`Servers`]: the connections, and which of them a command takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::failure::CallError;
use crate::link::{Called, Command, Link, Outgoing, Status};

/// One server for all keys, or the masters of a cluster.
#[derive(Clone)]
pub enum Servers {
    /// One server at a time.
    One(Arc<Link>),
    /// Each key has its master.
    Cluster(Arc<Cluster>),
}

impl From<Arc<Link>> for Servers {
    fn from(link: Arc<Link>) -> Self {
        Self::One(link)
    }
}

impl Servers {
    /// Connects, or finds out where to.
    pub async fn connect(&self) -> Result<(), CallError> {
        match self {
            Self::One(link) => link.connect().await.map(drop),
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Sends a command about `key` to the server that has the key. The command is made for each server that is tried: each
    /// server has its own clock.
    pub fn call<'a, C: Command + 'a>(
        &'a self,
        key: &'a str,
        command: impl Fn(&Link) -> Outgoing<C> + Send + Sync + 'a,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Called, CallError>> {
        match self {
            Self::One(link) => link.call(command, deadline),
            Self::Cluster(cluster) => Box::pin(async move { cluster.call(key, &command, deadline).await }),
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

    /// Looks at the link to the server of `key`; `None` when there is none.
    #[inline]
    pub fn at<T>(&self, key: &str, look: impl FnOnce(&Arc<Link>) -> T) -> Option<T> {
        match self {
            Self::One(link) => Some(look(link)),
            Self::Cluster(cluster) => cluster.link_of(key).as_ref().map(look),
        }
    }

    /// Whether each key needs a command of its own.
    #[inline]
    pub fn are_many(&self) -> bool {
        match self {
            Self::One(link) => link.has_slots(),
            Self::Cluster(_) => true,
        }
    }

    /// A link to each server, also to those that were not used yet.
    pub fn links(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Cluster(cluster) => cluster.to_all_masters(),
        }
    }

    /// Finds out which of the connections are alive.
    pub async fn heartbeat(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.heartbeat(deadline).await,
            Self::Cluster(cluster) => cluster.heartbeat(deadline).await,
        }
    }

    /// Replaces the connections that broke.
    pub async fn connect_again(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.connect_again(deadline).await,
            Self::Cluster(cluster) => cluster.connect_again(deadline).await,
        }
    }

    /// Begins to connect again where there is no connection, and waits for nothing. It must be called inside a runtime.
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

    /// The connection to the server of `key`; `None` to a master of a cluster that was not used yet.
    ///
    /// Another master of a cluster may look far away: it stood still when the connection to it was made. A master that was not used yet
    /// may be as far away as any other, and its connection is made on first use.
    #[inline]
    pub fn status(&self, key: &str) -> Option<Status> {
        match self {
            Self::One(link) => Some(link.status()),
            Self::Cluster(cluster) => cluster.link_of(key).filter(|link| link.was_used()).map(|link| link.status()),
        }
    }

    /// How long the farthest server takes to answer, as far as is known.
    #[inline]
    pub fn round_trip(&self) -> Duration {
        match self {
            Self::One(link) => link.round_trip(),
            Self::Cluster(cluster) => cluster.round_trip(),
        }
    }

    /// How long an answer takes now until its task has it, because many are on their way. Zero while few are.
    pub fn lag(&self) -> Duration {
        match self {
            Self::One(link) => link.lag(),
            Self::Cluster(cluster) => cluster.lag(),
        }
    }

    /// Asks the runtimes that read pushes whether they run. Returns whether one has not answered since the last call.
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

    /// The server that has `key`, as people write it.
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
