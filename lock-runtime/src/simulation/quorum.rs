//! Worlds whose locks are on a quorum.
//!
//! A fault may hit one server alone, and then everything continues. In most of these worlds tasks are polled late, even where the servers
//! are distant and messages are lost.

mod scenes;

use std::time::Duration;

use fastrand::Rng;
use server_model::ScriptTime;

use super::late::Late;
use super::world::{Plan, ROUND_TRIPS};

pub(super) fn plan(random: &mut Rng) -> Plan {
    let plan = Plan {
        nodes: 0,
        servers: random.choice([3, 3, 3, 5]).unwrap_or(3),
        processes: random.usize(2..=3),
        tasks: random.u32(1..=4),
        keys: random.u64(1..=3),
        is_busy: false,
        lease: random.u64(100..=4000),
        faults: Duration::from_millis(random.u64(3000..=8000)),
        push_lost: if random.u8(..6) == 0 { 0.2 } else { 0.0 },
        cut: if random.u8(..6) == 0 { 0.02 } else { 0.0 },
        stalls: 0.0,
        pause: random.choice([None, Some(1500), Some(500), Some(150)]).flatten().map(Duration::from_millis),
        rate: 0.992 + 0.016 * random.f64(),
        drift_ppm: 10_000,
        forgetful: false,
        load: 0,
        round_trip: random.choice(ROUND_TRIPS).unwrap_or_default(),
        late: of_tasks(random),
        foreign: false,
        linger: 0,
        delete: None,
        script_time: ScriptTime::default(),
    };
    Plan { lease: plan.lease.max(plan.shortest_lease()), ..plan }
}

fn of_tasks(random: &mut Rng) -> Late {
    match random.u8(..8) {
        0 | 1 => Late::Sometimes(5000),
        2 | 3 => Late::Often(5000),
        4 => Late::Always(200),
        5 => Late::Thread(5000),
        _ => Late::Never,
    }
}
