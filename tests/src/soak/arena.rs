//! [`Arena`]: the servers of a round, and what can happen to them.

mod failover;
mod quorum;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use super::plan::Plan;
use super::strike::{Kind, Place, Strike};
use crate::aof;
use crate::cluster::Cluster;
use crate::proxy::{Distance, Proxy};
use crate::sentinel::Sentinels;
use crate::server::{self, Server};
use history::event::now;

pub use failover::Shards;
pub use quorum::Voters;

/// Servers that locks live on.
pub trait Arena: Debug + Send + 'static {
    /// For a manager.
    fn url(&self) -> String;

    /// Does something to one of the servers. Returns when all is settled again: whom it hit, and the instant of the end.
    fn suffer(&mut self, strike: &Strike) -> (String, u64);

    /// The URLs of the servers themselves.
    fn servers(&self) -> Vec<String>;

    /// What is between workers and servers.
    fn proxies(&self) -> Vec<Arc<Proxy>> {
        Vec::new()
    }

    /// The files of a server that all is in, for its own record of what it did.
    fn record(&self) -> Option<&Path> {
        None
    }

    /// Which servers are masters, where that can change by itself; `None` while they do not agree.
    fn masters(&self) -> Option<Vec<usize>> {
        Some(Vec::new())
    }

    /// Every key with the milliseconds it has left, on those servers that decide about locks.
    fn keys(&self) -> BTreeMap<String, i64>;
}

/// The servers that the plan wants.
#[must_use]
pub fn start(plan: &Plan) -> Box<dyn Arena> {
    let arena: Box<dyn Arena> = match plan.place {
        Place::Redis => Box::new(One::start(plan.servers)),
        Place::Sentinel => Box::new(Sentinels::of(plan.servers, 1)),
        Place::Cluster => {
            let cluster = Cluster::launch(plan.servers, 3, true);
            Box::new(Shards { cluster, keys: plan.keys(), moves_atomically: false })
        }
        Place::Quorum => Box::new(Voters::start(plan.servers, 3)),
    };
    for proxy in arena.proxies() {
        proxy.move_away(Distance { round_trip: plan.round_trip, ..Distance::default() });
    }
    arena
}

/// What a server needs so that its record can be followed and [`Kind::SleepServer`] can happen.
fn options() -> Vec<&'static str> {
    [&aof::OPTIONS[..], &["--enable-debug-command", "yes"]].concat()
}

/// One server behind a proxy.
#[derive(Debug)]
struct One {
    server: Server,
    proxy: Arc<Proxy>,
}

impl One {
    fn start(kind: server::Kind) -> Self {
        let server = Server::of(kind, &options());
        let proxy = Arc::new(Proxy::unrecorded(&server));
        Self { server, proxy }
    }
}

impl Arena for One {
    fn url(&self) -> String {
        self.proxy.url()
    }

    fn suffer(&mut self, strike: &Strike) -> (String, u64) {
        let over = match strike.kind {
            Kind::StopServer => stop(&self.server, strike),
            Kind::RestartServer => {
                self.server.kill();
                self.server.restart();
                now()
            }
            Kind::KillServer => {
                self.server.kill();
                std::thread::sleep(strike.length);
                let over = now();
                self.server.restart();
                over
            }
            Kind::RestartEmpty => {
                restart_empty(&mut self.server);
                now()
            }
            other => panic!("{other:?} does not happen to one server"),
        };
        ("server".to_owned(), over)
    }

    fn servers(&self) -> Vec<String> {
        vec![self.server.url()]
    }

    fn proxies(&self) -> Vec<Arc<Proxy>> {
        vec![Arc::clone(&self.proxy)]
    }

    fn record(&self) -> Option<&Path> {
        Some(self.server.folder())
    }

    fn keys(&self) -> BTreeMap<String, i64> {
        self.server.keys()
    }
}

/// Returns an instant at which it was still stopped.
fn stop(server: &Server, strike: &Strike) -> u64 {
    server.freeze();
    std::thread::sleep(strike.length);
    let over = now();
    server.thaw();
    over
}

fn restart_empty(server: &mut Server) {
    server.kill();
    std::fs::remove_dir_all(server.folder().join("appendonlydir")).expect("the server's files");
    server.restart();
}
