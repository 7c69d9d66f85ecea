//! What one server reports about itself, and what that means for locks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lock_runtime::{BackendError, LockServer};

use super::{Finding, Verdict, clock};
use crate::output::brief;
use crate::sample::Sample;
use crate::server::{facts, is_denied, setting};

type Facts = BTreeMap<String, String>;

/// How many replies the latency is measured over.
const PINGS: u32 = 50;
/// The default command timeout leaves this much time for a round trip.
const FAR: Duration = Duration::from_millis(300);
/// The number of hash slots of a cluster.
const SLOTS: u32 = 16_384;

/// All checks of one of `servers` servers. A server that does not answer, or stops answering, gets only that verdict.
pub(super) async fn all(server: &LockServer, servers: usize) -> Vec<Finding> {
    answered(server, servers).await.unwrap_or_else(|away| {
        let found = format!("does not answer: {away}");
        vec![
            Finding::new(server.address(), "connection", Verdict::Bad, found)
                .advise("look whether the server runs, and whether this machine reaches it"),
        ]
    })
}

/// The findings. The error means that the server did not answer.
async fn answered(server: &LockServer, servers: usize) -> Result<Vec<Finding>, BackendError> {
    let address = server.address();
    let info = facts(server, &["INFO"]).await?;
    let mut findings = vec![version(address, &info), role(address, &info, servers)];
    findings.extend(cluster(server, &info).await?);
    findings.extend(vote(server));
    findings.push(persistence(server, &info).await?);
    findings.push(eviction(server, &info).await?);
    findings.push(latency(server).await?);
    findings.push(clock::check(server).await?);
    findings.push(alarms(server).await?);
    findings.push(release(server).await?);
    if servers == 1 || is_in_cluster(&info) {
        findings.push(replica_waits(server).await?);
    }
    Ok(findings)
}

fn version(address: &str, info: &Facts) -> Finding {
    let (name, version) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return Finding::unknown(address, "version", "+info"),
    };
    // A server that lacks what locks need was refused when the doctor connected, whatever its version.
    Finding::new(address, "version", Verdict::Good, format!("{name} {version}"))
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
        None => Finding::unknown(address, "replicas", "+info"),
    }
}

fn is_in_cluster(info: &Facts) -> bool {
    info.get("cluster_enabled").is_some_and(|enabled| enabled == "1")
}

async fn cluster(server: &LockServer, info: &Facts) -> Result<Option<Finding>, BackendError> {
    if !is_in_cluster(info) {
        return Ok(None);
    }
    let (address, check) = (server.address(), "cluster");
    let told = facts(server, &["CLUSTER", "INFO"]).await?;
    let served = told.get("cluster_slots_ok").and_then(|slots| slots.parse::<u32>().ok());
    // With `cluster-require-full-coverage no` the state is `ok` even when some slots have no master.
    Ok(Some(match (told.get("cluster_state").map(String::as_str), served) {
        (Some("ok"), Some(SLOTS)) => Finding::new(address, check, Verdict::Good, "all slots are served"),
        (Some(state), Some(served)) => {
            let found = format!("its state is {state}, and {served} of {SLOTS} slots are served");
            Finding::new(address, check, Verdict::Bad, found)
                .advise("look at `CLUSTER NODES`: locks in a slot without a master can't be had")
        }
        _ => Finding::unknown(address, check, "+cluster|info"),
    }))
}

/// Whether a server of a quorum may vote. `None` if it may, or there is no quorum.
fn vote(server: &LockServer) -> Option<Finding> {
    let found = format!("its grants do not count: {}", server.lacks_vote()?);
    let advice = "wait, and stop no other server meanwhile: the quorum has one server less";
    Some(Finding::new(server.address(), "vote", Verdict::Doubt, found).advise(advice))
}

async fn persistence(server: &LockServer, info: &Facts) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "persistence");
    if info.get("loading").is_some_and(|loading| loading == "1") {
        return Ok(Finding::new(address, check, Verdict::Bad, "the server is loading its data").advise("wait"));
    }
    let policy = setting(server, "appendfsync").await?;
    Ok(match (info.get("aof_enabled").map(String::as_str), policy.as_deref()) {
        (Some("1"), Some("always")) => Finding::new(address, check, Verdict::Good, "appendonly, appendfsync always"),
        (Some("1"), policy) => {
            let found = format!("appendonly, appendfsync {}", policy.unwrap_or("unknown"));
            Finding::new(address, check, Verdict::Doubt, found)
                .advise("a crash of the machine may forget the last second of locks: `appendfsync always` forgets none")
        }
        (Some(_), _) => Finding::new(address, check, Verdict::Doubt, "no appendonly file")
            .advise("a restart forgets all locks: set `appendonly yes` and `appendfsync always`, or fence"),
        (None, _) => Finding::unknown(address, check, "+info"),
    })
}

async fn eviction(server: &LockServer, info: &Facts) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "eviction");
    let policy = info.get("maxmemory_policy").cloned();
    let limit = info.get("maxmemory").and_then(|limit| limit.parse().ok()).unwrap_or(0_u64);
    let used = info.get("used_memory").and_then(|used| used.parse().ok()).unwrap_or(0_u64);
    Ok(match policy.or(setting(server, "maxmemory-policy").await?) {
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
        None => Finding::unknown(address, check, "+info"),
    })
}

async fn latency(server: &LockServer) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "latency");
    let mut sample = Sample::default();
    for _ in 0..PINGS {
        let begun = Instant::now();
        // A refusal is a reply, too.
        let _ = server.ask(&["PING"]).await?;
        sample.add(begun.elapsed());
    }
    let times = sample.summary();
    let (median, p99) = (Duration::from_micros(times.median_us), Duration::from_micros(times.p99_us));
    let found = format!("{} (99 %: {})", brief(median), brief(p99));
    Ok(if p99 < FAR {
        Finding::new(address, check, Verdict::Good, found)
    } else {
        Finding::new(address, check, Verdict::Doubt, found)
            .advise("raise `command_timeout` and `connect_timeout` as \"At a distance\" in docs/topologies.md says")
    })
}

/// Whether the server reports when another client changes a lock.
async fn alarms(server: &LockServer) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "alarms");
    // This connection tracks nothing, so this changes nothing.
    let refused = match server.ask(&["CLIENT", "TRACKING", "OFF"]).await? {
        Err(refused) => Some(refused),
        Ok(_) => server.ask(&["CLIENT", "CACHING", "YES"]).await?.err(),
    };
    Ok(match refused {
        Some(refused) if is_denied(&refused) => Finding::new(address, check, Verdict::Doubt, "no alarms: the user lacks rights")
            .advise("give the user +client|tracking +client|caching, or a lock that is deleted by hand is noticed only when it is renewed"),
        Some(refused) if is_unable(&refused) => Finding::new(address, check, Verdict::Doubt, "no alarms: the server has no CLIENT TRACKING")
            .advise("a lock that is deleted by hand is noticed only when it is renewed: choose a shorter lease where that matters"),
        Some(refused) if !is_untracked(&refused) => {
            Finding::new(address, check, Verdict::Unknown, format!("the server refuses to tell: {refused}"))
        }
        _ => Finding::new(address, check, Verdict::Good, "the server tells when a lock is deleted"),
    })
}

/// How a lock without waiters is released.
async fn release(server: &LockServer) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "release");
    // No such value exists, so nothing is deleted.
    for (name, command) in [
        ("DELIFEQ", &["DELIFEQ", "cache_lock:probe", "lockctl"][..]),
        ("DELEX", &["DELEX", "cache_lock:probe", "IFEQ", "lockctl"]),
    ] {
        match server.ask(command).await? {
            Err(refused) if is_unable(&refused) => {}
            Err(refused) if is_denied(&refused) && refused.to_string().contains("command") => {
                let found = format!("by script: the user lacks a right to {name}");
                let advice = format!("give the user +{}: a release is cheaper then", name.to_lowercase());
                return Ok(Finding::new(address, check, Verdict::Doubt, found).advise(&advice));
            }
            _ => return Ok(Finding::new(address, check, Verdict::Good, format!("by {name}"))),
        }
    }
    Ok(Finding::new(address, check, Verdict::Good, "by script: the server has neither DELIFEQ nor DELEX"))
}

/// Whether replicas can confirm a lock.
async fn replica_waits(server: &LockServer) -> Result<Finding, BackendError> {
    let (address, check) = (server.address(), "replica waits");
    Ok(match server.ask(&["WAIT", "0", "0"]).await? {
        Ok(_) => Finding::new(address, check, Verdict::Good, "replicas can confirm a lock"),
        Err(refused) if is_denied(&refused) => {
            Finding::new(address, check, Verdict::Doubt, "no replica waits: the user lacks a right")
                .advise("give the user +wait if you use `min_replicas`; nothing else needs it")
        }
        Err(_) => Finding::new(address, check, Verdict::Doubt, "no replica waits: the server has no WAIT")
            .advise("`min_replicas` can't be used there; nothing else needs it"),
    })
}

/// Whether the server knows `CLIENT CACHING`, and refused it because nothing is tracked on this connection.
fn is_untracked(refused: &BackendError) -> bool {
    refused.to_string().to_ascii_lowercase().contains("tracking")
}

/// Whether the server does not know the command, or this form of it.
fn is_unable(refused: &BackendError) -> bool {
    let refused = refused.to_string().to_ascii_lowercase();
    ["unknown", "syntax error", "wrong number of arguments", "not supported"]
        .iter()
        .any(|saying| refused.contains(saying))
}
