//! W12: many processes want one key. What does a hand-off cost the server, and what do those who only wait?
//!
//! To the lock a manager is a process: it has a token, a channel and connections of its own. Here all are in one process.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::child::{Run, ready};
use crate::contestant::{Contestant, connect_raw};
use crate::outcome::Outcome;
use crate::stats::float;

/// How many processes there are; what a hand-off among the fewest costs is the measure of the others.
pub(crate) const CROWDS: [u32; 4] = [2, 10, 100, 1_000];
/// How many connect at once.
const CONNECTING: usize = 50;

/// The server's CPU per hand-off among so many, in times that among two.
pub(crate) fn growth_of(processes: u32) -> String {
    format!("server CPU per hand-off, {processes} processes / 2")
}

/// What the server needs while so many wait for a lock that is held.
pub(crate) fn idle_of(processes: u32) -> String {
    format!("{processes} wait, % of a core of the server")
}

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let largest = CROWDS.iter().copied().max().unwrap_or_default();
    let managers = connect::<C>(&run.url, run.size(largest, 100)).await?;
    let mut server = connect_raw(&run.url).await?;
    let mut outcome = Outcome::default();
    ready();
    let mut of_two = f64::NAN;
    for processes in CROWDS {
        let Some(crowd) = managers.get(..processes as usize) else { break };
        let per_hand_off = pass(crowd, &mut server, &mut outcome).await?;
        if processes == 2 {
            of_two = per_hand_off;
            outcome.set("server µs per hand-off", per_hand_off);
        } else {
            outcome.set(&growth_of(processes), per_hand_off / of_two);
        }
    }
    for processes in CROWDS {
        let Some(crowd) = managers.get(..processes as usize).filter(|crowd| crowd.len() >= 100) else { continue };
        outcome.set(&idle_of(processes), 100.0 * wait(crowd, &mut server, run).await?);
    }
    Ok(outcome)
}

async fn connect<C: Contestant>(url: &str, count: u32) -> Result<Vec<C>, String> {
    let mut managers = Vec::new();
    let mut connecting = JoinSet::new();
    for _ in 0..count {
        let url = url.to_owned();
        connecting.spawn(async move { C::connect(&url).await });
        if connecting.len() >= CONNECTING {
            managers.extend(connecting.join_next().await.transpose().map_err(|error| error.to_string())?.transpose()?);
        }
    }
    while let Some(connected) = connecting.join_next().await {
        managers.push(connected.map_err(|error| error.to_string())??);
    }
    Ok(managers)
}

/// All of them lock the key again and again. Returns the microseconds of the server's CPU for each hand-off.
async fn pass<C: Contestant>(
    crowd: &[C],
    server: &mut MultiplexedConnection,
    outcome: &mut Outcome,
) -> Result<f64, String> {
    // Each has its turn a few times, and the longest crowd has settled by then.
    let end = Instant::now() + Duration::from_secs(2) + Duration::from_millis(3) * u32::try_from(crowd.len()).unwrap_or(0);
    let middle = end - Duration::from_millis(1_500);
    let mut tasks = JoinSet::new();
    for lock in crowd.iter().cloned() {
        tasks.spawn(async move {
            let (mut outcome, mut counted) = (Outcome::default(), 0);
            while Instant::now() < end {
                let held = lock.with("w12:0", async {}).await;
                let now = Instant::now();
                counted += usize::from(held.is_ok() && now > middle && now < end);
                outcome.count(held);
            }
            (outcome, counted)
        });
    }
    tokio::time::sleep_until(middle).await;
    let before = cpu_seconds(server).await?;
    tokio::time::sleep_until(end).await;
    let used = cpu_seconds(server).await? - before;
    let mut hand_offs = 0;
    while let Some(joined) = tasks.join_next().await {
        let (of_task, counted) = joined.map_err(|error| error.to_string())?;
        outcome.absorb(of_task);
        hand_offs += counted;
    }
    Ok(used * 1e6 / float(hand_offs))
}

/// One of them holds the key, and all the others wait for it. Returns the server's share of a core.
async fn wait<C: Contestant>(crowd: &[C], server: &mut MultiplexedConnection, run: &Run) -> Result<f64, String> {
    let mut waiters = JoinSet::new();
    for lock in crowd.iter().cloned() {
        waiters.spawn(async move { lock.with("w12:1", std::future::pending::<()>()).await });
    }
    // Until all are in the queue, and ask as seldom as they ever do.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let span = Duration::from_secs(run.size(20, 10).into());
    let before = cpu_seconds(server).await?;
    tokio::time::sleep(span).await;
    let used = cpu_seconds(server).await? - before;
    waiters.shutdown().await;
    Ok(used / span.as_secs_f64())
}

/// What the server has used since its start, by its own account: system and user time.
async fn cpu_seconds(server: &mut MultiplexedConnection) -> Result<f64, String> {
    let info: String =
        redis::cmd("INFO").arg("cpu").query_async(server).await.map_err(|error| error.to_string())?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    field("used_cpu_sys:").zip(field("used_cpu_user:")).map(|(sys, user)| sys + user).ok_or_else(|| info.clone())
}
