//! Worlds whose locks are in a cluster. Its nodes have the same keys, and slots move from one node to another.
//!
//! When a slot moves, the old node learns of it a little later. Until then its listeners still receive the new master's sharded messages,
//! but the new master does not count them as listeners. Then the server ends their subscriptions.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_wire::Seeds;
use server_model::slot_of;
use tokio::time::sleep;

use super::host::nameless;
use super::network::Network;
use super::process::of_links;
use super::world::Plan;
use crate::settings::Settings;
use crate::store::redis::RedisStore;
use crate::store::redis::connections::{of_callers, of_keeper};

const NODES: usize = 4;
/// A node learns of a move within this time, in milliseconds.
const NEWS: u64 = 60;

pub(super) fn plan(random: &mut Rng) -> Plan {
    let plan = Plan::of(random);
    let pause = random.choice([1500, 500, 150]).map(Duration::from_millis);
    Plan { nodes: NODES, forgetful: false, foreign: false, load: 0, keys: plan.keys.min(3), pause, ..plan }
}

/// The stores of a manager: for its tasks, and for its keeper.
pub(super) fn stores(network: &Arc<Network>, name: &str, settings: &Settings, process: &str) -> [RedisStore; 2] {
    let addresses = (1..=NODES).map(|port| nameless(&format!("redis://node:{port}"))).collect();
    let seeds = Seeds::simulated(Arc::new(network.host(name)), addresses).unwrap();
    of_links(settings).to_cluster(seeds, [of_callers(process), of_keeper(process)])
}

/// Moves the slots of some locks.
pub(super) fn move_slots(network: &Arc<Network>, plan: &Plan, random: &mut Rng) {
    for key in 0..plan.keys {
        if random.bool() {
            continue;
        }
        let (slot, to) = (slot_of(format!("k:{key}").as_bytes()), random.usize(..NODES));
        let from = network.server(|server, _| server.move_slot(slot, to));
        if from == to {
            continue;
        }
        let (network, delay) = (Arc::clone(network), Duration::from_millis(random.u64(0..=NEWS)));
        tokio::spawn(async move {
            sleep(delay).await;
            network.server(|server, _| server.end_sharded(slot, from));
        });
    }
}
