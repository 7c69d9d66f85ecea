//! [`Connections`]: what the connections of a manager share, and what locks need from a server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_wire::{
    Ability, CallError, Channel, Cluster, Common, Endpoint, Known, Link, Purpose, Seeds, Servers, Topology,
    is_known_command,
};
use redis::{Pipeline, Value};

use super::RedisStore;
use super::command::Delete;
use super::push::News;
use super::replicas::Replicas;
use super::reply;
use super::vote::Vote;
use crate::settings::Settings;
use crate::store::voter::Sighting;

/// The key name in [`NEEDS`].
const PROBE: &str = "cache_lock:probe";

/// What the protocol needs and a server may lack, and a command that tests for it. None of the commands can change anything: one word has
/// too few arguments, and `GT` shortens nothing, whatever key has this name.
const NEEDS: &[Ability] = &[
    ("Lua scripts (`EVAL`)", &["EVAL", "return 1", "0"]),
    ("`EVALSHA`", &["EVALSHA"]),
    ("`PEXPIRE … GT`", &["PEXPIRE", PROBE, "1", "GT"]),
    ("`ZPOPMIN`", &["ZPOPMIN"]),
];

/// What all connections of a manager share.
#[derive(Clone)]
pub(crate) struct Connections {
    common: Common,
    news: Arc<News>,
    min_replicas: Option<(u32, Duration)>,
}

/// The channel for everything about the locks of the process.
pub(crate) fn of_callers(process: &str) -> Channel {
    Channel { name: format!("cache_lock:{process}"), is_of_callers: true }
}

/// The channel for leases that may linger (rule L9): the keeper may be the only part of the process that is awake.
pub(crate) fn of_keeper(process: &str) -> Channel {
    Channel { name: format!("cache_lock:{process}:keeper"), is_of_callers: false }
}

impl Connections {
    /// `spawn` runs the background work of the connections.
    pub(crate) fn new(settings: &Settings, spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static) -> Self {
        let Settings { command_timeout, connect_timeout, min_replicas, .. } = *settings;
        let news = Arc::new(News::new(min_replicas.is_some(), connect_timeout));
        let events = Arc::clone(&news) as Arc<dyn lock_wire::Events>;
        let (drift, spawn) = (settings.drift(), Arc::new(spawn));
        Self { common: Common { drift, command_timeout, connect_timeout, spawn, events }, news, min_replicas }
    }

    /// The store over one connection. For a server of a quorum, `max_lease` is the longest lease that it may have forgotten in a restart.
    pub(crate) fn to_server(
        &self,
        endpoint: Endpoint,
        channel: Option<Channel>,
        max_lease: Option<Duration>,
    ) -> RedisStore {
        let member = max_lease.map(|max_lease| (max_lease, Sighting::default()));
        let purpose = Locks { min_replicas: self.min_replicas, member };
        let link = Link::new(endpoint, channel, Arc::new(purpose), self.common.clone());
        RedisStore { servers: Servers::One(link), news: Arc::clone(&self.news) }
    }

    /// Two stores over connections to the masters of a cluster. The second connects to each master that the first connects to, so the
    /// release of a guard that is dropped at once need not wait for a connection.
    pub(crate) fn to_cluster(&self, seeds: Seeds, channels: [Channel; 2]) -> [RedisStore; 2] {
        let topology = Topology::new(seeds, self.common.clone());
        let purpose: Arc<dyn Purpose> = Arc::new(Locks { min_replicas: self.min_replicas, member: None });
        let [front, back] = channels.map(|channel| Cluster::new(&topology, channel, Arc::clone(&purpose)));
        front.mirror_connections(&back);
        [front, back].map(|masters| RedisStore { servers: Servers::Cluster(masters), news: Arc::clone(&self.news) })
    }
}

/// What locks need from a server.
struct Locks {
    /// How many replicas confirm a grant, and within what time.
    min_replicas: Option<(u32, Duration)>,
    /// For a server of a quorum: the longest lease that it may have forgotten, and since when its process is known.
    member: Option<(Duration, Sighting)>,
}

impl Purpose for Locks {
    fn needs(&self) -> &'static [Ability] {
        NEEDS
    }

    fn ask(&self, commands: &mut Pipeline) {
        if self.member.is_some() {
            Vote::ask(commands);
        }
        // The number of arguments is wrong, so neither has an effect. A server checks that before it checks rights.
        commands.cmd("DELIFEQ").arg(PROBE).cmd("DELEX");
    }

    fn read(&self, replies: &mut dyn Iterator<Item = Value>) -> Result<Known, CallError> {
        let mut known = Known::default();
        if let Some((max_lease, sighting)) = &self.member {
            known.kept = Some(Arc::new(Vote::read((replies.next(), replies.next()), *max_lease, sighting)?));
        } else if let Some((count, within)) = self.min_replicas {
            known.kept = Some(Arc::new(Replicas::new(count, within)));
        }
        for by in [Delete::IfEq, Delete::Ex] {
            if replies.next().is_some_and(|reply| is_known_command(&reply)) {
                known.marks |= by.mark();
            }
        }
        Ok(known)
    }

    fn refusal<'a>(&self, reply: &'a Value) -> Option<&'a str> {
        reply::caught(reply)
    }

    fn unanswered(&self, link: &Link, limit: Duration) -> CallError {
        match link.known::<Replicas>() {
            Some(replicas) if replicas.keep_waiting() => replicas.unconfirmed(limit),
            _ => CallError::Silent(limit),
        }
    }

    fn has_others(&self) -> bool {
        self.member.is_some()
    }
}
