//! Masters with replicas, under sentinels or in a cluster.

use std::collections::BTreeMap;

use super::{Arena, stop};
use crate::cluster::Cluster;
use crate::sentinel::Sentinels;
use crate::server::Server;
use crate::soak::strike::{Kind, Strike};
use history::event::now;

impl Arena for Sentinels {
    fn url(&self) -> String {
        Self::url(self)
    }

    fn suffer(&mut self, strike: &Strike) -> (String, u64) {
        let before = self.agreed();
        match strike.kind {
            Kind::FailOver => {
                let _ = self.fail_over();
            }
            Kind::KillMaster => {
                self.server_mut(before).kill();
                let _ = self.await_another(before);
                self.server_mut(before).restart();
            }
            Kind::StopMaster => {
                self.doubt_the_servers();
                let _ = stop(self.server(before), strike);
            }
            Kind::StopMasterUntilReplaced => {
                self.doubt_the_servers();
                self.server(before).freeze();
                let _ = self.await_another(before);
                self.server(before).thaw();
            }
            other => panic!("{other:?} does not happen under sentinels"),
        }
        self.settle();
        (format!("server {before}"), now())
    }

    fn servers(&self) -> Vec<String> {
        Self::servers(self).map(Server::url).collect()
    }

    fn masters(&self) -> Option<Vec<usize>> {
        self.master().map(|master| vec![master])
    }

    fn keys(&self) -> BTreeMap<String, i64> {
        self.master_server().keys()
    }
}

/// A cluster with a replica per master, and the locks whose slots may move.
#[derive(Debug)]
pub struct Shards {
    /// Three masters, each with a replica.
    pub cluster: Cluster,
    /// The keys of the locks.
    pub keys: Vec<String>,
    /// Whether slots move by Valkey 9's atomic migration.
    pub moves_atomically: bool,
}

impl Shards {
    /// Moves each lock's slot to another master.
    fn move_slots(&self, victim: usize) {
        let cluster = &self.cluster;
        for (number, key) in self.keys.iter().enumerate() {
            let from = cluster.owner_of(key);
            let others: Vec<_> = (0..6).filter(|node| *node != from && cluster.is_master(*node)).collect();
            let (slot, to) = (cluster.slot(key), others[victim.wrapping_add(number) % others.len()]);
            if self.moves_atomically { cluster.migrate_atomically(slot, to) } else { cluster.migrate(slot, to) }
        }
    }
}

impl Arena for Shards {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn suffer(&mut self, strike: &Strike) -> (String, u64) {
        let before = self.cluster.owner_of(&self.keys[strike.victim % self.keys.len()]);
        // First the masters, then the replica of each.
        let replica = (before + 3) % 6;
        let cluster = &mut self.cluster;
        match strike.kind {
            Kind::FailOver => cluster.fail_over_to(replica),
            Kind::KillMaster => {
                cluster.node_mut(before).kill();
                cluster.await_master(replica);
                cluster.node_mut(before).restart();
                cluster.await_one_master(before);
            }
            Kind::StopMaster => {
                let _ = stop(cluster.node(before), strike);
            }
            Kind::StopMasterUntilReplaced => {
                cluster.node(before).freeze();
                cluster.await_master(replica);
                cluster.node(before).thaw();
                cluster.await_one_master(before);
            }
            Kind::MoveSlots => self.move_slots(strike.victim),
            other => panic!("{other:?} does not happen to a cluster"),
        }
        self.cluster.settle();
        (format!("server {before}"), now())
    }

    fn servers(&self) -> Vec<String> {
        self.cluster.nodes().map(Server::url).collect()
    }

    fn masters(&self) -> Option<Vec<usize>> {
        Some((0..6).filter(|node| self.cluster.is_master(*node)).collect())
    }

    fn keys(&self) -> BTreeMap<String, i64> {
        let masters = self.masters().unwrap_or_default().into_iter();
        masters.flat_map(|node| self.cluster.node(node).keys()).collect()
    }
}
