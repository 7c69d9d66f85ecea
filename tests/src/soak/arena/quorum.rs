//! [`Voters`]: independent servers, of which at most one is down at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use super::{Arena, options, restart_empty, stop};
use crate::proxy::Proxy;
use crate::server::{self, Server};
use crate::soak::plan::MAX_LEASE;
use crate::soak::strike::{Kind, Strike};
use history::event::now;

/// A restarted server votes again after `max_lease` plus a second, because it reports its uptime in whole seconds.
const NO_VOTE: Duration = Duration::from_millis(MAX_LEASE + 1000);

/// Independent servers, each behind a proxy.
#[derive(Debug)]
pub struct Voters {
    servers: Vec<Server>,
    proxies: Vec<Arc<Proxy>>,
}

impl Voters {
    /// Starts this many empty servers.
    #[must_use]
    pub fn start(kind: server::Kind, count: usize) -> Self {
        let servers: Vec<_> = (0..count).map(|_| Server::of(kind, &options())).collect();
        let proxies = servers.iter().map(|server| Arc::new(Proxy::unrecorded(server))).collect();
        Self { servers, proxies }
    }
}

impl Arena for Voters {
    fn url(&self) -> String {
        let addresses: Vec<_> = self.proxies.iter().map(|proxy| proxy.url().replace("redis://", "")).collect();
        format!("redlock://{}", addresses.join(","))
    }

    fn suffer(&mut self, strike: &Strike) -> (String, u64) {
        let victim = strike.victim % self.servers.len();
        let (server, proxy) = (&mut self.servers[victim], &self.proxies[victim]);
        match strike.kind {
            Kind::StopOne => {
                let _ = stop(server, strike);
            }
            Kind::CutOffOne => {
                proxy.cut_off();
                sleep(strike.length);
                proxy.rejoin();
            }
            Kind::RestartOne => {
                server.kill();
                sleep(strike.length);
                server.restart();
                sleep(NO_VOTE);
            }
            Kind::RestartOneEmpty => {
                restart_empty(server);
                sleep(NO_VOTE);
            }
            other => panic!("{other:?} does not happen to a quorum"),
        }
        (format!("server {victim}"), now())
    }

    fn servers(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    fn proxies(&self) -> Vec<Arc<Proxy>> {
        self.proxies.clone()
    }

    fn keys(&self) -> BTreeMap<String, i64> {
        self.servers.iter().flat_map(Server::keys).collect()
    }
}
