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

/// The servers of the locks.
pub trait Arena: Debug + Send + 'static {
    /// The URL for managers.
    fn url(&self) -> String;

    /// Plays a fault on one of the servers, and returns when all is settled again. The result is the server's name, and when the fault
    /// was over.
    fn suffer(&mut self, strike: &Strike) -> (String, u64);

    /// The URLs of the servers, without the proxies.
    fn servers(&self) -> Vec<String>;

    /// The proxies between workers and servers.
    fn proxies(&self) -> Vec<Arc<Proxy>> {
        Vec::new()
    }

    /// The folder of the server if there is only one: its append-only file records all changes.
    fn record(&self) -> Option<&Path> {
        None
    }

    /// Which servers are masters, where failovers can happen; `None` while the servers disagree.
    fn masters(&self) -> Option<Vec<usize>> {
        Some(Vec::new())
    }

    /// Every key with its remaining milliseconds, on the servers that decide about locks.
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

/// The options that the append-only file and [`Kind::SleepServer`] need.
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
