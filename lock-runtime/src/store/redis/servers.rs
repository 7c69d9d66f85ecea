//! [`Servers`]: the connections, and which of them a command takes.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Cmd;

use super::cluster::Cluster;
use super::failure::CallError;
use super::link::{Called, Link, Outgoing};
use crate::clock::Deadline;
use crate::store::{Events, StoreError};

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
    pub(super) async fn call<C>(
        &self,
        key: &str,
        command: &(impl Fn(&Link) -> C + Send + Sync),
        deadline: Deadline,
    ) -> Result<Called, CallError>
    where
        C: Into<Outgoing>,
    {
        match self {
            Self::One(link) => link.call(command(link), deadline).await,
            Self::Cluster(cluster) => {
                let command = |link: &Link| command(link).into();
                let called: BoxFuture<'_, _> = Box::pin(async move { cluster.call(key, &command, deadline).await });
                called.await
            }
        }
    }

    /// The failure of a command, with the name of the server in its text.
    pub(super) fn name_failure(&self, error: CallError) -> StoreError {
        let error = StoreError::from(error);
        match self {
            Self::One(link) => StoreError { problem: error.problem.of(link.server()), ..error },
            // The route names the master.
            Self::Cluster(_) => error,
        }
    }

    /// As [`Link::send_behind`].
    pub(super) fn send_behind(&self, key: &str, command: &Cmd) {
        match self {
            Self::One(link) => link.send_behind(command),
            Self::Cluster(cluster) => cluster.send_behind(key, command),
        }
    }

    /// Whether several tasks wait for answers of the server of `key`. Then what they send next may go together.
    pub(super) fn are_busy(&self, key: &str) -> bool {
        match self {
            Self::One(link) => link.is_busy(),
            Self::Cluster(cluster) => cluster.is_busy(key),
        }
    }

    /// Whether a claim of `key` goes together with others. It does not where its task waits for more than the server's answer: for
    /// the other servers of a quorum, or for replicas, each task for as long as its own time lasts.
    pub(super) fn gather_claims(&self, key: &str) -> bool {
        match self {
            Self::One(link) => link.is_busy() && !link.is_voter() && link.replicas.is_none(),
            Self::Cluster(_) => self.are_busy(key),
        }
    }

    /// The link that a command about `key` takes. `None` when the command has to look for its way.
    pub(super) fn direct(&self, key: &str) -> Option<Arc<Link>> {
        match self {
            Self::One(link) => Some(Arc::clone(link)),
            Self::Cluster(cluster) => cluster.direct(key),
        }
    }

    /// Whether each lock needs a command of its own.
    pub(super) fn are_many(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(_) => true,
        }
    }

    pub(super) fn server_of(&self, key: &str) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.server_of(key),
        }
    }

    /// The server of `key`, as people write it.
    pub(super) fn server_name(&self, key: &str) -> String {
        match self {
            Self::One(link) => link.server().to_owned(),
            Self::Cluster(cluster) => cluster.server_name(key),
        }
    }

    pub(super) async fn heartbeat(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.heartbeat(deadline).await,
            Self::Cluster(cluster) => cluster.heartbeat(deadline).await,
        }
    }

    /// Replaces broken connections before they are needed.
    pub(super) async fn connect_again(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.connect_again(deadline).await,
            Self::Cluster(cluster) => cluster.connect_again(deadline).await,
        }
    }

    /// How long a server takes to answer, as far as it is known.
    pub(super) fn round_trip(&self) -> Duration {
        match self {
            Self::One(link) => link.round_trip(),
            Self::Cluster(cluster) => cluster.round_trip(),
        }
    }

    /// Whether the connection to the server of `key` is broken. A server that was not used yet does not count: its
    /// connection is made on first use.
    pub(super) fn is_cut_off(&self, key: &str) -> bool {
        match self {
            Self::One(link) => !link.is_connected(),
            Self::Cluster(cluster) => cluster.is_cut_off(key),
        }
    }

    /// Whether there is a connection on which the server of `key` can push.
    pub(super) fn hears_of(&self, key: &str) -> bool {
        match self {
            Self::One(link) => link.is_connected(),
            Self::Cluster(cluster) => cluster.hears_of(key),
        }
    }

    /// Whether the server of `key` tells when the lock is changed.
    pub(super) fn has_alarms(&self, key: &str) -> bool {
        match self {
            Self::One(link) => link.has_alarms(),
            Self::Cluster(cluster) => cluster.has_alarms(key),
        }
    }

    /// A link to each server, also to those that were not used yet.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Cluster(cluster) => cluster.to_all_masters(),
        }
    }

    /// Whether each server that was used has a connection.
    pub(super) fn are_connected(&self) -> bool {
        match self {
            Self::One(link) => link.is_connected(),
            Self::Cluster(cluster) => cluster.is_connected(),
        }
    }

    pub(super) fn begin_to_connect(&self) {
        match self {
            Self::One(link) => link.begin_to_connect(),
            Self::Cluster(cluster) => cluster.begin_to_connect(),
        }
    }

    /// As [`Link::outage`].
    pub(super) fn outage(&self, key: &str) -> Option<(Duration, CallError)> {
        match self {
            Self::One(link) => link.outage(),
            Self::Cluster(cluster) => cluster.outage(key),
        }
    }

    /// As [`Link::unanswered`].
    pub(super) fn unanswered(&self, key: &str, limit: Duration) -> CallError {
        match self {
            Self::One(link) => link.unanswered(limit),
            Self::Cluster(cluster) => cluster.unanswered(key, limit),
        }
    }

    pub(super) async fn warn_of_eviction(&self, deadline: Deadline) {
        match self {
            Self::One(link) => link.warn_of_eviction(deadline).await,
            // Each server of a cluster is checked when it is first used.
            Self::Cluster(_) => {}
        }
    }

    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        match self {
            Self::One(link) => link.attach(events),
            Self::Cluster(cluster) => cluster.attach(events),
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
