//! [`Servers`]: the one server of a world, or those of a quorum.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use history::event::What;
use history::{Event, Violation};
use server_model::ModelServer;

use super::network::{Conditions, Network};
use super::seeded::Bug;
use super::world::Plan;
use crate::store::voter::MARKER;

/// A server, with or without a bug in its scripts, and with or without a command of its own for releasing a lock.
pub(super) fn model_server(bug: Option<Bug>, delete: Option<&'static str>) -> ModelServer {
    let mut server = ModelServer::new();
    let patches = bug.map(Bug::patches).unwrap_or_default();
    for (from, to) in patches {
        server.patch(from, to);
    }
    if !patches.is_empty() {
        // A bug in the long path of a release shows only without the short path. A bug in the short path has already changed this line.
        server.patch("local is_short = #", "local is_short = false and #");
    }
    if let Some(name) = delete {
        server.set_delete(name);
    }
    server
}

/// The name of the server's own command for a release; half of the servers have none. Nothing else in the world depends on it.
pub(super) fn choose_delete(random: &Rng) -> Option<&'static str> {
    random.clone().choice([None, Some("DELIFEQ"), None, Some("DELEX")]).flatten()
}

#[derive(Clone)]
pub(super) struct Servers(Vec<Arc<Network>>);

impl Servers {
    pub(super) fn of(plan: &Plan, bug: Option<Bug>, random: &mut Rng) -> Self {
        let model = |number| {
            let mut server = model_server(bug, plan.delete);
            // Worlds have few processes: all but the first of a queue pause, for a second each time.
            server.patch("local NEAR = 16 ", "local NEAR = 1 ");
            server.patch("local PAUSE = 8000 ", "local PAUSE = 1000 ");
            server.set_script_time(plan.script_time);
            server.set_nodes(plan.nodes);
            server.set_run_id(&format!("{number:040}"));
            server
        };
        let first = Network::new(model(0), plan.rate, random.fork());
        first.count_servers(plan.servers);
        let others = (1..plan.servers)
            .map(|number| first.beside(model(number), 0.992 + 0.016 * random.f64(), random.fork(), number))
            .collect();
        let all = Self([vec![first], others].concat());
        for network in &all.0 {
            network.move_away(plan.round_trip());
            if plan.servers > 1 {
                put_in_service(network);
            }
        }
        all
    }

    pub(super) fn all(&self) -> &[Arc<Network>] {
        &self.0
    }

    /// The only server, or the one whose queue counts; all notes are made here.
    pub(super) fn first(&self) -> &Arc<Network> {
        &self.0[0]
    }

    /// The servers that a fault hits: on a quorum, every other one hits one server alone.
    pub(super) fn hit(&self, random: &mut Rng) -> Self {
        if self.0.len() > 1 && random.bool() {
            Self(vec![Arc::clone(&self.0[random.usize(..self.0.len())])])
        } else {
            self.clone()
        }
    }

    pub(super) fn note(&self, process: &str, task: u32, what: What) {
        self.first().note(process, task, what);
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        self.first().take_events()
    }

    pub(super) fn take_seen(&self) -> Vec<Violation> {
        self.0.iter().flat_map(|network| network.take_seen()).collect()
    }

    pub(super) fn set_conditions(&self, conditions: Conditions) {
        self.0.iter().for_each(|network| network.set_conditions(conditions));
    }

    pub(super) fn part(&self, process: &str, span: Duration) {
        self.0.iter().for_each(|network| network.part(process, span));
    }

    pub(super) fn cut(&self, process: Option<&str>) {
        self.0.iter().for_each(|network| network.cut(process));
    }

    pub(super) fn freeze(&self, span: Duration) {
        self.0.iter().for_each(|network| network.freeze(span));
    }

    pub(super) fn deafen(&self, process: &str) {
        self.0.iter().for_each(|network| network.deafen(process));
    }

    pub(super) fn cut_unused(&self) {
        self.0.iter().for_each(|network| network.cut_unused());
    }

    pub(super) fn is_deaf(&self, process: &str) -> bool {
        self.0.iter().any(|network| network.is_deaf(process))
    }

    pub(super) fn flush_scripts(&self) {
        self.0.iter().for_each(|network| network.server(|server, _| server.flush_scripts()));
    }
}

/// Lets a server of a quorum vote as if it had been in service for long.
fn put_in_service(network: &Network) {
    network.server(|server, now| {
        let client = server.connect();
        let words = ["SET", MARKER, &server.run_id()].map(|word| word.as_bytes().to_vec());
        server.execute(client, now, &words);
        server.disconnect(client);
    });
}
