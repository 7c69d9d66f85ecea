//! W12: many processes want one key. What does a hand-off cost the server, and what do the waiters cost it?
//!
//! Each manager counts as a process: it has its own token, channel and connections. Here all are in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::child::{Run, ready};
use crate::contestant::{Contestant, connect_raw};
use crate::outcome::Outcome;
use crate::stats::float;

/// The numbers of processes. The cost of a hand-off among the fewest is the unit for the others.
pub(crate) const CROWDS: [u32; 4] = [2, 10, 100, 1_000];
/// How many connect at once.
const CONNECTING: usize = 50;

/// The server's CPU time per hand-off among this many managers, as a multiple of that among two.
pub(crate) fn growth_of(processes: u32) -> String {
    format!("server CPU per hand-off, {processes} processes / 2")
}

/// What the server uses while this many managers wait for a held lock.
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
    // First each has two turns: a connection sends the text of each script once.
    let warm_up = 2 * crowd.len();
    let all = warm_up + crowd.len().max(2_000);
    let hand_offs = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for lock in crowd {
        let lock = lock.clone();
        let hand_offs = Arc::clone(&hand_offs);
        tasks.spawn(async move {
            let mut outcome = Outcome::default();
            while hand_offs.load(Ordering::Relaxed) < all && outcome.failures == 0 {
                outcome.count(lock.with("w12:0", async {}).await);
                hand_offs.fetch_add(1, Ordering::Relaxed);
            }
            outcome
        });
    }
    let (before, used_before) = (reach(&hand_offs, warm_up).await, cpu_seconds(server).await?);
    let (after, used_after) = (reach(&hand_offs, all).await, cpu_seconds(server).await?);
    while let Some(joined) = tasks.join_next().await {
        outcome.absorb(joined.map_err(|error| error.to_string())?);
    }
    Ok((used_after - used_before) * 1e6 / float(after - before))
}

/// Waits until there were at least `count` hand-offs. Returns how many there were.
async fn reach(hand_offs: &AtomicUsize, count: usize) -> usize {
    loop {
        let reached = hand_offs.load(Ordering::Relaxed);
        if reached >= count {
            return reached;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One of them holds the key, and all others wait for it. Returns the server's share of a core.
async fn wait<C: Contestant>(crowd: &[C], server: &mut MultiplexedConnection, run: &Run) -> Result<f64, String> {
    let mut waiters = JoinSet::new();
    for lock in crowd {
        let lock = lock.clone();
        waiters.spawn(async move { lock.with("w12:1", std::future::pending::<()>()).await });
    }
    // Until all are in the queue, and have learned how seldom they may ask.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let span = Duration::from_secs(run.size(20, 10).into());
    let before = cpu_seconds(server).await?;
    tokio::time::sleep(span).await;
    let used = cpu_seconds(server).await? - before;
    waiters.shutdown().await;
    Ok(used / span.as_secs_f64())
}

/// What the server has used since its start, by its own report: system and user time.
async fn cpu_seconds(server: &mut MultiplexedConnection) -> Result<f64, String> {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(server).await.map_err(|error| error.to_string())?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    field("used_cpu_sys:").zip(field("used_cpu_user:")).map(|(sys, user)| sys + user).ok_or_else(|| info.clone())
}
