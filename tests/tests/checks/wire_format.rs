//! What processes of two versions share: the keys, values and channels that a server sees. The test compares this version's session with
//! a recorded one.
//!
//! It leaves out what each version brings along: its scripts, their arguments and their replies.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lock_runtime::{LockManager, OnBusy, WIRE_FORMAT};
use regex::Regex;
use tests::cluster::Cluster;
use tests::patience::eventually;
use tests::server::{Kind, Server};

const LONG: Duration = Duration::from_secs(20);
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/checks/wire_format");

/// The part of a command that other processes can see.
const SHARED_WITH_OTHERS: [&str; 16] = [
    "HELLO",
    "CLIENT",
    "SET",
    "DEL",
    "DELIFEQ",
    "PEXPIRE",
    "PEXPIREAT",
    "ZADD",
    "ZREM",
    "ZPOPMIN",
    "ZREMRANGEBYSCORE",
    "SUBSCRIBE",
    "SSUBSCRIBE",
    "PUBLISH",
    "SPUBLISH",
    "EXPIRE",
];

#[tokio::test]
async fn the_traffic_is_as_recorded_for_its_format_number() {
    let mut recorded = format!("Wire format {WIRE_FORMAT}\n");
    let server = Server::start();
    recorded += &section("On one server", &server, session(&server.url(), &server)).await;
    let cluster = Cluster::one_node(Kind::Redis);
    recorded += &section("On a node of a cluster", cluster.node(0), pass_on(&cluster.url(), cluster.node(0))).await;
    let file = Path::new(FOLDER).join(format!("{WIRE_FORMAT}.txt"));
    if !file.exists() {
        // Only for a new number: the record of a number is never overwritten.
        std::fs::write(&file, &recorded).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    let (expected, found): (BTreeSet<_>, BTreeSet<_>) = (expected.lines().collect(), recorded.lines().collect());
    let (gone, new): (Vec<_>, Vec<_>) = (expected.difference(&found).collect(), found.difference(&expected).collect());
    assert!(
        gone.is_empty() && new.is_empty(),
        "What is on the wire has changed, so processes of two versions may not understand each other. Raise `WIRE_FORMAT`, and have the \
         keys and channels carry the number (\"Formats\" in docs/protocol.md). Only if an older version understands the change, which \
         the test beside an older version has to show, correct {}.\ngone: {gone:#?}\nnew: {new:#?}",
        file.display()
    );
}

/// So an operator sees in `CLIENT LIST` which formats are in use.
#[tokio::test]
async fn each_connection_shows_the_format_number_in_the_client_list() {
    let server = Server::of(Kind::Valkey, &[]);
    let _locks = LockManager::connect(&server.url()).await.unwrap();
    let clients: String = server.ask("CLIENT LIST");
    assert!(clients.contains(&format!("lib-name=lock-runtime(wire-{WIRE_FORMAT})")), "{clients}");
}

/// If two formats share a server, neither reads what the other has written.
#[test]
fn the_keys_and_channels_of_later_formats_carry_the_number() {
    let helper = Regex::new(r"\}:(queue|shared|head|newest|confirm)\b(:\d+)?").unwrap();
    let channel = Regex::new(r"(?i)^S?(SUBSCRIBE|PUBLISH) cache_lock:(\d+:)?").unwrap();
    for entry in std::fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        let number: u32 = path.file_stem().unwrap().to_str().unwrap().parse().expect("a number for a name");
        let text = std::fs::read_to_string(&path).unwrap();
        let wanted = |suffix: Option<regex::Match<'_>>, pattern: String| {
            let found = suffix.map_or("", |suffix| suffix.as_str());
            assert_eq!(found, if number == 1 { String::new() } else { pattern }, "{}", path.display());
        };
        for line in text.lines() {
            helper.captures_iter(line).for_each(|found| wanted(found.get(2), format!(":{number}")));
            channel.captures_iter(line).for_each(|found| wanted(found.get(2), format!("{number}:")));
        }
    }
}

/// What the server sees of `played`, each line once.
async fn section(title: &str, server: &Server, played: impl Future<Output = ()>) -> String {
    let lines = monitor(server);
    played.await;
    server.tell("ECHO over");
    let mut ids = Vec::new();
    let mut seen = BTreeSet::new();
    for line in lines {
        let words = words(&line);
        match words.first().map(|name| name.to_uppercase()) {
            Some(name) if name == "ECHO" => break,
            Some(name) if SHARED_WITH_OTHERS.contains(&name.as_str()) => {
                if name == "SUBSCRIBE" {
                    ids.extend(words[1..].iter().filter_map(|channel| Some(channel.split(':').nth(1)?.to_owned())));
                }
                seen.insert(plain(&format!("{name} {}", words[1..].join(" ")), &ids));
            }
            _ => {}
        }
    }
    let lines: Vec<String> = seen.into_iter().collect();
    format!("\n{title}\n{}\n", lines.join("\n"))
}

/// The commands that the server executes from now on, also those of scripts.
fn monitor(server: &Server) -> Receiver<String> {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "+OK");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while let Some(Ok(line)) = lines.next() {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// `+1700000000.123456 [0 lua] "set" "a b"`
fn words(line: &str) -> Vec<String> {
    let quoted = Regex::new(r#""((?:[^"\\]|\\.)*)""#).unwrap();
    quoted.captures_iter(line).map(|word| word[1].replace("\\\"", "\"")).collect()
}

/// Removes what differs from run to run.
fn plain(line: &str, ids: &[String]) -> String {
    let mut line = line.to_owned();
    for (pattern, put) in [
        // The sequence of a shared lease contains its capacity.
        (r"\.1\d{10,16}(\d{10})@", ".1<number>$1@"),
        (r"\.0\d+@", ".0<number>@"),
        (r"\.[1-9]\d*@", ".<number>@"),
        (r"\b1[5-9]\d{14}\b", "<µs>"),
        (r"\b1[5-9]\d{11}\b", "<ms>"),
        (r"\b[0-9a-f]{40}\b", "<node>"),
        (r"(cache_lock:<?[0-9a-f]+>?)\{\d+\}", "$1{<shard tag>}"),
        // The remaining time of a rest.
        (r"\d+ LT$", "<left> LT"),
        (r"\b(alone|rest|force|shared|permit|p):k\b", "<lock>"),
        (r"@(north|south)\b", "@<label>"),
    ] {
        line = Regex::new(pattern).unwrap().replace_all(&line, put).into_owned();
    }
    for id in ids {
        line = line.replace(id.as_str(), "<id>");
    }
    Regex::new(r"\b[0-9a-f]{32}\b").unwrap().replace_all(&line, "<random>").into_owned()
}

async fn managers(url: &str) -> [LockManager; 2] {
    let connect = |label| async move { LockManager::builder().url(url).label(label).connect().await.unwrap() };
    [connect("north").await, connect("south").await]
}

/// Hands a lock off from one process to another.
async fn pass_on(url: &str, server: &Server) {
    let [north, south] = managers(url).await;
    // The first hand-off to a process goes to all nodes, the next ones to its shard.
    for _ in 0..2 {
        let guard = north.lock("p", "k").acquire().await.unwrap();
        eventually("the lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
        let waiting = tokio::spawn(south.lock("p", "k").timeout(LONG).acquire());
        eventually("it waits", LONG, || server.keys().contains_key("{p:k}:queue")).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn session(url: &str, server: &Server) {
    let [north, south] = managers(url).await;
    let is_there = async |name: &str| eventually("the key is there", LONG, || server.keys().contains_key(name)).await;

    // An exclusive lock: a claim, its confirmation, a fencing token, a release.
    let guard = north.lock("alone", "k").fenced(true).acquire().await.unwrap();
    eventually("the lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
    // A lease that lingers, and is handed off.
    let waiting = tokio::spawn(south.lock("alone", "k").timeout(LONG).linger(Duration::from_secs(1)).acquire());
    is_there("{alone:k}:queue").await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();

    // The newest request replaces the holder.
    let newest = tokio::spawn(north.lock("alone", "k").timeout(LONG).on_busy(OnBusy::Replace).acquire());
    guard.lost().await;
    drop(guard);
    let guard = newest.await.unwrap().unwrap();

    // A hold that is given away as a ticket, and a lock that rests.
    let ticket = guard.into_ticket(Duration::from_mins(1)).await.unwrap();
    south.adopt(ticket).await.unwrap().release().await.unwrap();
    north.lock("rest", "k").at_least(Duration::from_millis(500)).acquire().await.unwrap().release().await.unwrap();

    // A release by force.
    let guard = north.lock("force", "k").acquire().await.unwrap();
    assert!(south.force_release("force", "k").await.unwrap());
    drop(guard);

    // Readers and a writer.
    let reader = north.lock("shared", "k").read().fenced(true).acquire().await.unwrap();
    eventually("the lease is confirmed", LONG, || reader.remaining() > Duration::from_secs(10)).await;
    let writer = tokio::spawn(south.lock("shared", "k").timeout(LONG).acquire());
    is_there("{shared:k}:queue").await;
    let next = tokio::spawn(north.lock("shared", "k").read().timeout(LONG).acquire());
    reader.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();

    // Permits.
    let permits = [
        north.lock("permit", "k").permits(2).acquire().await.unwrap(),
        north.lock("permit", "k").permits(2).acquire().await.unwrap(),
    ];
    eventually("it is confirmed", LONG, || permits[0].remaining() > Duration::from_secs(10)).await;
    let waiting = tokio::spawn(south.lock("permit", "k").permits(2).timeout(LONG).acquire());
    is_there("{permit:k}:queue").await;
    for permit in permits {
        permit.release().await.unwrap();
    }
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // One of the two permits is released by force.
    let [taken, kept] = [&north, &south].map(|locks| locks.lock("permit", "k").permits(2).acquire());
    let (taken, kept) = (taken.await.unwrap(), kept.await.unwrap());
    assert!(south.force_release_named("permit:k", Some("north")).await.unwrap());
    assert!(taken.release().await.is_err());
    kept.release().await.unwrap();
    for locks in [north, south] {
        locks.shutdown().await;
    }
}
