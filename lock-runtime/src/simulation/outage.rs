//! An outage with traffic: besides the other tasks, some tasks constantly try locks, each on its own key, while the server is away. That
//! has to cost little, however long it lasts: what was never sent is not withdrawn, and what was sent is withdrawn with pauses and for a
//! limited time.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use history::claims::HARNESS;
use history::event::What;
use history::{Violation, Wanted};
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::Process;
use super::tasks::{told, until};
use super::time;
use super::world::{Plan, nanos};
use crate::LockManager;

const CHECK: &str = "C11 an outage costs little";

/// Where the load's task numbers begin; its keys begin higher still.
const FIRST: u32 = 1000;
/// How long the load runs before and after the outage.
const AROUND: Duration = Duration::from_millis(300);
/// No unanswered try ends sooner, in milliseconds.
const SHORTEST_TRY: u64 = 80;
/// By then a connection without answers has been given up.
const FOUND_OUT: Duration = Duration::from_secs(2);
/// Batches of releases that a process may send per second to a server that is away.
const BATCHES: u64 = 2;

/// Takes the server away under load; `calm` are the conditions around it.
pub(super) async fn befall(
    network: &Arc<Network>,
    plan: &Plan,
    processes: &[Process],
    calm: Conditions,
    random: &mut Rng,
) {
    // For longer than a withdrawal is repeated.
    let span = Duration::from_millis(random.u64(8000..9000));
    let end = Instant::now() + AROUND + span + AROUND;
    let mut load = Vec::new();
    for process in processes {
        for number in 0..plan.load {
            let (network, name, manager) = (Arc::clone(network), process.name().to_owned(), process.manager().clone());
            load.push(tokio::spawn(tries(network, name, FIRST + number, manager, end, random.fork())));
        }
    }
    sleep(AROUND).await;
    let from = time::now().unwrap_or_default();
    match random.u8(..3) {
        0 => {
            network.set_conditions(Conditions { refused: 1.0, ..calm });
            network.cut(None);
        }
        1 => network.freeze(span),
        _ => processes.iter().for_each(|process| network.part(process.name(), span)),
    }
    sleep(FOUND_OUT).await;
    let before: Vec<_> = processes.iter().map(sent).collect();
    sleep(span.saturating_sub(FOUND_OUT)).await;
    for (process, before) in processes.iter().zip(before) {
        judge(network, plan, process, sent(process) - before, span);
    }
    network.set_conditions(calm);
    // The history's word for a server that does not answer.
    let fault = What::Fault { kind: "StopServer".to_owned(), target: "server".to_owned(), from };
    network.note(HARNESS, 0, fault);
    for task in load {
        task.await.unwrap();
    }
}

fn sent(process: &Process) -> u64 {
    process.manager().core().schedule().releases().1
}

/// Counts what the keeper keeps and does at the end of the outage.
fn judge(network: &Network, plan: &Plan, process: &Process, sent: u64, span: Duration) {
    let (kept, _) = process.manager().core().schedule().releases();
    // The commands on their way when the server went away, and the leases of holds that have ended since. Within two round trips neither a
    // try nor its withdrawal is answered, and the next tries follow.
    let tries = 1 + u32::try_from(plan.round_trip * 2 / SHORTEST_TRY).unwrap_or(u32::MAX);
    let most = usize::try_from(plan.load * tries + 2 * plan.tasks).unwrap_or(usize::MAX);
    if kept > most {
        see(network, format!("{} keeps {kept} releases at the end of an outage, and not {most}", process.name()));
    }
    let most = BATCHES * span.as_secs();
    if sent > most {
        see(network, format!("{} sends {sent} batches of releases in an outage, and not {most}", process.name()));
    }
}

fn see(network: &Network, text: String) {
    let now = time::now().unwrap_or_default();
    network.see(Violation { check: CHECK, text, key: None, range: (now, now + 1) });
}

/// One try after another.
async fn tries(network: Arc<Network>, process: String, task: u32, manager: LockManager, end: Instant, mut random: Rng) {
    let mut attempt = 0;
    while Instant::now() < end {
        attempt += 1;
        let timeout = Duration::from_millis(random.u64(1..80));
        let expire = Duration::from_secs(1);
        let key = u64::from(task) * u64::from(FIRST) + u64::from(attempt);
        let wanted = Wanted {
            timeout: nanos(timeout) / 1_000_000,
            expire: nanos(expire) / 1_000_000,
            fenced: random.bool(),
            ..Wanted::default()
        };
        let note = |what| network.note(&process, task, what);
        note(What::Acquire { attempt, key: format!("k:{key}"), wanted });
        let request = manager.lock("k", &key).timeout(timeout).expire(expire).renew(false).fenced(wanted.fenced);
        match request.acquire().await {
            Ok(guard) => {
                note(What::Granted { attempt, until: until(&guard), fence: guard.fencing_token().map(u64::from) });
                note(What::Release { attempt, dropped: true });
                drop(guard);
                let text = String::new();
                note(What::Released { attempt, how: history::event::How::Done, text });
            }
            Err(error) => {
                let (how, text) = told(&error);
                note(What::Refused { attempt, how, text });
            }
        }
        sleep(Duration::from_millis(random.u64(0..40))).await;
    }
}
