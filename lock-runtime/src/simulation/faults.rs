//! Faults, one after another, until the world is healed.

use std::time::Duration;

use fastrand::Rng;
use history::claims::HARNESS;
use history::event::What;
use tokio::time::{Instant, sleep, sleep_until};

use super::network::{Conditions, Network};
use super::process::Process;
use super::servers::Servers;
use super::time;
use super::world::Plan;
use super::{cluster, foreign, outage};

const CALM: Conditions = Conditions {
    delay: Duration::from_millis(2),
    slow: 0.0,
    refused: 0.0,
    cut_before: 0.0,
    cut_after: 0.0,
    push_lost: 0.0,
};

/// The longest stall of the server inside a script.
const STALL: Duration = Duration::from_millis(250);

/// How long the effects of a fault last.
const ALONE: Duration = Duration::from_millis(3200);

/// Injects faults into the processes until `end`.
pub(super) async fn befall(servers: &Servers, plan: &Plan, processes: &mut [Process], end: Instant, random: &mut Rng) {
    let (network, calm) = (servers.first(), Conditions { push_lost: plan.push_lost, cut_after: plan.cut, ..CALM });
    servers.set_conditions(calm);
    if plan.stalls > 0.0 {
        network.stall(plan.stalls, STALL);
    }
    if plan.forgetful {
        // Without other faults at the same time, which would excuse the effects.
        sleep(ALONE).await;
        if random.u8(..4) != 0 {
            restart(network);
        } else {
            network.forget();
            note(network, "FlushAll", "server", time::now().unwrap_or_default());
        }
        sleep(ALONE).await;
    }
    if plan.foreign {
        foreign::befall(network, plan, end, random).await;
    }
    if plan.load > 0 {
        outage::befall(network, plan, processes, calm, random).await;
    }
    if let Some(pause) = plan.pause {
        loop {
            let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            sleep(Duration::from_millis(random.u64(0..=2 * pause))).await;
            if Instant::now() >= end {
                break;
            }
            let process = random.usize(..processes.len());
            if random.u8(..10) == 0 {
                processes[process].kill(plan, end, random);
            } else if plan.nodes > 0 && random.u8(..3) > 0 {
                cluster::move_slots(network, plan, random);
                note(network, "MoveSlots", "wire", time::now().unwrap_or_default());
            } else {
                one(servers, processes[process].name(), plan.forgetful, random).await;
                servers.set_conditions(calm);
            }
        }
    }
    sleep_until(end).await;
    servers.set_conditions(CALM);
    if plan.stalls > 0.0 {
        network.stall(0.0, Duration::ZERO);
    }
}

/// One fault, from start to end.
async fn one(all: &Servers, process: &str, is_forgetful: bool, random: &mut Rng) {
    let from = time::now().unwrap_or_default();
    let span = Duration::from_millis(match random.u8(..10) {
        0..5 => random.u64(1..300),
        5..9 => random.u64(300..3500),
        _ => random.u64(3500..6000),
    });
    let servers = &all.hit(random);
    let kinds = if is_forgetful { 13 } else { 10 };
    let (kind, target) = match random.u8(..kinds) {
        0 | 9 => {
            servers.freeze(span);
            sleep(span).await;
            ("StopServer", "server")
        }
        1 => {
            servers.part(process, span);
            sleep(span).await;
            if random.bool() {
                // What was sent meanwhile is lost, not late.
                servers.cut(Some(process));
            }
            ("Part", "wire")
        }
        2 => {
            servers.cut(Some(process));
            ("Cut", "wire")
        }
        3 => {
            servers.cut(None);
            ("CutAll", "wire")
        }
        4 => {
            servers.deafen(process);
            sleep(span).await;
            if random.bool() {
                servers.cut(Some(process));
            } else {
                // The process has to notice by itself.
                for _ in 0..30 {
                    if servers.is_deaf(process) {
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            }
            ("Deafen", "wire")
        }
        5 => {
            servers.flush_scripts();
            ("FlushScripts", "server")
        }
        6 => {
            time::suspend(span);
            all.note(HARNESS, 0, What::Stalled { from });
            ("Suspend", "host")
        }
        7 => {
            servers.set_conditions(Conditions { push_lost: 0.5, ..CALM });
            sleep(span).await;
            ("LosePushes", "wire")
        }
        10 => {
            all.first().forget();
            ("FlushAll", "server")
        }
        11.. => {
            return restart(all.first());
        }
        _ => {
            let conditions = Conditions { slow: 0.15, refused: 0.2, cut_before: 0.02, cut_after: 0.02, ..CALM };
            servers.set_conditions(conditions);
            sleep(span).await;
            ("Storm", "wire")
        }
    };
    let kind = if servers.all().len() < all.all().len() && kind == "StopServer" { "StopOneServer" } else { kind };
    note(all.first(), kind, target, from);
}

/// The server restarts without its data.
fn restart(network: &Network) {
    network.forget();
    network.cut(None);
    note(network, "RestartEmpty", "server", time::now().unwrap_or_default());
}

fn note(network: &Network, kind: &str, target: &str, from: u64) {
    network.note(HARNESS, 0, What::Fault { kind: kind.to_owned(), target: target.to_owned(), from });
}
