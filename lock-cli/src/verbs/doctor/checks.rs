//! What one server tells about itself, and what that means for locks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_runtime::LockServer;

use super::{Finding, Verdict};
use crate::output::brief;
use crate::sample::Sample;
use crate::server::{facts, items, setting, text};

type Facts = BTreeMap<String, String>;

/// How many answers the latency is measured by.
const PINGS: u32 = 50;
/// The default command timeout leaves this much for a round trip.
const FAR: Duration = Duration::from_millis(300);
/// Clocks need not agree, but so much is a clock that nobody sets.
const WRONG_CLOCK: Duration = Duration::from_secs(2);
/// The time over which clocks are compared, and how much faster the server's may run (the default is 1 %).
const COMPARED: Duration = Duration::from_millis(1500);
const DRIFT: f64 = 0.005;

/// All checks of one server out of `servers`.
pub(super) async fn all(server: &LockServer, servers: usize) -> Vec<Finding> {
    let address = server.address();
    let info = facts(server, &["INFO"]).await;
    let mut findings = vec![version(address, &info), role(address, &info, servers)];
    findings.extend(cluster(server, &info).await);
    findings.push(persistence(server, &info).await);
    findings.push(eviction(server, &info).await);
    findings.push(latency(server).await);
    findings.push(clock(server).await);
    findings
}

fn version(address: &str, info: &Facts) -> Finding {
    let (name, version) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return unknown(address, "version", "+info"),
    };
    let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0_u32);
    let found = format!("{name} {version}");
    if major >= 7 {
        Finding::new(address, "version", Verdict::Good, found)
    } else {
        Finding::new(address, "version", Verdict::Bad, found).advise("use Redis 7.0 or newer, or any Valkey")
    }
}

fn role(address: &str, info: &Facts, servers: usize) -> Finding {
    let replicas: u32 = info.get("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or_default();
    match info.get("role").map(String::as_str) {
        Some("master") if replicas > 0 => {
            let found = format!("a master with {replicas} replicas");
            Finding::new(address, "replicas", Verdict::Doubt, found).advise(
                "a failover may lose locks: see `min_replicas`, fencing tokens, or a quorum in docs/topologies.md",
            )
        }
        Some("master") if servers == 1 => Finding::new(
            address,
            "replicas",
            Verdict::Good,
            "none: the server has no failover, and is a single point of failure",
        ),
        Some("master") => Finding::new(address, "replicas", Verdict::Good, "a master without replicas"),
        Some(role) => Finding::new(address, "replicas", Verdict::Bad, format!("the server is a {role}"))
            .advise("name the master, or the sentinels, in the URL"),
        None => unknown(address, "replicas", "+info"),
    }
}

async fn cluster(server: &LockServer, info: &Facts) -> Option<Finding> {
    if info.get("cluster_enabled").map(String::as_str) != Some("1") {
        return None;
    }
    let state = facts(server, &["CLUSTER", "INFO"]).await;
    Some(match state.get("cluster_state").map(String::as_str) {
        Some("ok") => Finding::new(server.address(), "cluster", Verdict::Good, "all slots are served"),
        Some(other) => Finding::new(server.address(), "cluster", Verdict::Bad, format!("its state is {other}"))
            .advise("look at `CLUSTER NODES`: some slots have no master"),
        None => unknown(server.address(), "cluster", "+cluster|info"),
    })
}

async fn persistence(server: &LockServer, info: &Facts) -> Finding {
    let (address, check) = (server.address(), "persistence");
    if info.get("loading").is_some_and(|loading| loading == "1") {
        return Finding::new(address, check, Verdict::Bad, "the server is loading its data").advise("wait");
    }
    let policy = setting(server, "appendfsync").await;
    match (info.get("aof_enabled").map(String::as_str), policy.as_deref()) {
        (Some("1"), Some("always")) => Finding::new(address, check, Verdict::Good, "appendonly, appendfsync always"),
        (Some("1"), policy) => {
            let found = format!("appendonly, appendfsync {}", policy.unwrap_or("unknown"));
            Finding::new(address, check, Verdict::Doubt, found)
                .advise("a crash of the machine may forget the last second of locks: `appendfsync always` forgets none")
        }
        (Some(_), _) => Finding::new(address, check, Verdict::Doubt, "no appendonly file")
            .advise("a restart forgets all locks: set `appendonly yes` and `appendfsync always`, or fence"),
        (None, _) => unknown(address, check, "+info"),
    }
}

async fn eviction(server: &LockServer, info: &Facts) -> Finding {
    let (address, check) = (server.address(), "eviction");
    let policy = info.get("maxmemory_policy").cloned();
    let limit = info.get("maxmemory").and_then(|limit| limit.parse().ok()).unwrap_or(0_u64);
    let used = info.get("used_memory").and_then(|used| used.parse().ok()).unwrap_or(0_u64);
    match policy.or(setting(server, "maxmemory-policy").await) {
        Some(policy) if policy == "noeviction" && limit > 0 && used > limit / 10 * 9 => Finding::new(
            address,
            check,
            Verdict::Doubt,
            format!("noeviction, and {} % of the memory is used", used * 100 / limit),
        )
        .advise("no lock can be taken while memory is full: raise `maxmemory`"),
        Some(policy) if policy == "noeviction" => Finding::new(address, check, Verdict::Good, policy),
        Some(policy) => {
            let verdict = if limit == 0 { Verdict::Doubt } else { Verdict::Bad };
            let found = format!(
                "{policy}, with {}",
                if limit == 0 { "no limit of memory".to_owned() } else { format!("a limit of {limit} bytes") }
            );
            Finding::new(address, check, verdict, found)
                .advise("the server may drop locks when its memory is full: set `maxmemory-policy noeviction`")
        }
        None => unknown(address, check, "+info"),
    }
}

async fn latency(server: &LockServer) -> Finding {
    let (address, check) = (server.address(), "latency");
    let mut sample = Sample::default();
    for _ in 0..PINGS {
        let begun = Instant::now();
        // A refusal is an answer, too.
        let _ = server.ask(&["PING"]).await;
        sample.add(begun.elapsed());
    }
    let times = sample.summary();
    let (median, p99) = (Duration::from_micros(times.median_us), Duration::from_micros(times.p99_us));
    let found = format!("{} (99 %: {})", brief(median), brief(p99));
    if p99 < FAR {
        Finding::new(address, check, Verdict::Good, found)
    } else {
        Finding::new(address, check, Verdict::Doubt, found).advise(
            "raise `command_timeout` to more than three round trips; see \"At a distance\" in docs/topologies.md",
        )
    }
}

async fn clock(server: &LockServer) -> Finding {
    let (address, check) = (server.address(), "clock");
    let Some((first, begun)) = time(server).await else { return unknown(address, check, "+time") };
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    tokio::time::sleep(COMPARED).await;
    let Some((second, ended)) = time(server).await else { return unknown(address, check, "+time") };
    let passed = ended.duration_since(begun).as_secs_f64();
    let rate = second.saturating_sub(first).as_secs_f64() / passed - 1.0;
    let apart = first.abs_diff(here);
    let found = format!("{} from this machine's clock, {:+.2} % as fast", brief(apart), rate * 100.0);
    if rate.abs() > DRIFT {
        Finding::new(address, check, Verdict::Bad, found)
            .advise("clocks must be slewed slowly: see `max_clock_drift_ppm`, and chrony's `maxslewrate`")
    } else if apart > WRONG_CLOCK {
        Finding::new(address, check, Verdict::Doubt, found).advise(
            "locks do not compare clocks, but a clock that is set right later ends leases early: run chrony or ntpd",
        )
    } else {
        Finding::new(address, check, Verdict::Good, found)
    }
}

/// The server's time, and about when it was that time here.
async fn time(server: &LockServer) -> Option<(Duration, Instant)> {
    let begun = Instant::now();
    let reply = items(server.ask(&["TIME"]).await.ok()?);
    let middle = begun + begun.elapsed() / 2;
    let mut numbers = reply.iter().filter_map(text).filter_map(|number| number.parse::<u64>().ok());
    Some((Duration::from_secs(numbers.next()?) + Duration::from_micros(numbers.next()?), middle))
}

fn unknown(address: &str, check: &'static str, right: &str) -> Finding {
    Finding::new(address, check, Verdict::Unknown, format!("the server does not tell; that needs {right}"))
}
