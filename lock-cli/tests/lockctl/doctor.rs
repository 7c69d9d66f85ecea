//! `doctor`: what it finds on one server, and on several.

use serde_json::Value;
use tests::cluster::Cluster;
use tests::proxy::{Disguise, Proxy};
use tests::quorum::Servers;
use tests::server::{Kind, Server};

use crate::{LEAST_RIGHTS, json, lockctl, text};

/// The first finding of this check.
fn finding<'a>(findings: &'a Value, check: &str) -> &'a Value {
    let all = findings.as_array().unwrap();
    all.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}: {findings}"))
}

/// The verdict and the advice of this check.
fn verdict(findings: &Value, check: &str) -> (String, String) {
    let finding = finding(findings, check);
    (finding["verdict"].as_str().unwrap().to_owned(), finding["advice"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_doctor_finds_what_is_wrong_and_says_what_to_change() {
    let sound = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let findings = json(&lockctl(&["--json", "doctor", &sound.url()]).assert().success().get_output().stdout);
    let sound_in = [
        "version",
        "replicas",
        "persistence",
        "eviction",
        "latency",
        "clock",
        "alarms",
        "release",
        "replica waits",
        "locks",
    ];
    for check in sound_in {
        assert_eq!(verdict(&findings, check).0, "good", "{check}: {findings}");
    }
    let ill = Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru", "--appendonly", "no"]);
    let findings = json(&lockctl(&["--json", "doctor", &ill.url()]).assert().code(1).get_output().stdout);
    assert_eq!(verdict(&findings, "eviction").0, "bad");
    assert!(verdict(&findings, "eviction").1.contains("noeviction"));
    assert_eq!(verdict(&findings, "persistence").0, "doubt");
    // A user without the right to queue, nor to read anything about the server.
    sound.tell("ACL SETUSER least on >pass ~* &cache_lock:* -@all +set +get +del +time +subscribe +eval +evalsha");
    let url = sound.url().replace("redis://", "redis://least:pass@");
    let findings = json(&lockctl(&["--json", "doctor", &url]).assert().code(1).get_output().stdout);
    assert_eq!((verdict(&findings, "locks").0.as_str(), verdict(&findings, "version").0.as_str()), ("bad", "unknown"));
    assert!(verdict(&findings, "locks").1.contains("Rights"), "{findings}");
    for (check, right) in [("alarms", "+client|tracking"), ("replica waits", "+wait")] {
        let (verdict, advice) = verdict(&findings, check);
        assert!(verdict == "doubt" && advice.contains(right), "{check}: {findings}");
    }
}

/// What another kind of server lacks is named where it matters, and no advice is given to grant rights.
#[test]
fn a_doctor_names_what_a_server_can_not_do() {
    let server = Server::start();
    let instead = |words: &[String]| {
        let unknown = ["LACKING".to_owned()].to_vec();
        let is_tracking =
            words[0] == "CLIENT" && words.get(1).is_some_and(|word| word == "TRACKING" || word == "CACHING");
        (is_tracking || words[0] == "WAIT").then_some(unknown)
    };
    let plain = Proxy::disguised(&server, Disguise { name: "kevy", version: "1.39.0", instead });
    let findings = json(&lockctl(&["--json", "doctor", &plain.url()]).assert().success().get_output().stdout);
    for (check, told) in [("alarms", "no alarms"), ("replica waits", "no replica waits")] {
        let finding = finding(&findings, check);
        assert_eq!(finding["verdict"], "doubt", "{findings}");
        assert!(
            finding["found"].as_str().unwrap().contains(told)
                && !finding["advice"].as_str().unwrap().contains("rights"),
            "{finding}"
        );
    }
    assert_ne!(verdict(&findings, "version").0, "bad", "{findings}");
    // A server that answers in RESP2 is named, and no right would help.
    let instead =
        |words: &[String]| (words[0] == "HELLO").then(|| [&["HELLO".to_owned(), "2".to_owned()], &words[2..]].concat());
    let old = Proxy::disguised(&server, Disguise { name: "kevy", version: "1.39.0", instead });
    let refused = lockctl(&["doctor", &old.url()]).assert().code(69);
    let told = text(&refused.get_output().stderr);
    assert!(told.contains("kevy 1.39.0 lacks RESP3") && !told.contains("Rights"), "{told}");
}

/// A server that does not answer gets one finding, without advice to grant rights.
#[test]
fn a_doctor_finds_a_server_of_several_that_does_not_answer() {
    let mut quorum = Servers::of(Kind::Redis, 3);
    // It marks the servers as being in service.
    lockctl(&["doctor", &quorum.url()]).assert().success();
    let dead = quorum.server(1).address();
    quorum.server_mut(1).kill();
    let findings = json(&lockctl(&["--json", "doctor", &quorum.url()]).assert().code(1).get_output().stdout);
    let of_dead: Vec<_> = findings.as_array().unwrap().iter().filter(|finding| finding["server"] == *dead).collect();
    assert_eq!((of_dead.len(), &of_dead[0]["verdict"]), (1, &Value::from("bad")), "{findings}");
    assert!(of_dead[0]["found"].as_str().unwrap().contains("does not answer"), "{findings}");
    assert_eq!(verdict(&findings, "locks").0, "good", "{findings}");
    // The server is back without its data.
    quorum.server_mut(1).restart();
    let findings = json(&lockctl(&["--json", "doctor", &quorum.url()]).assert().success().get_output().stdout);
    let vote = finding(&findings, "vote");
    assert_eq!((&vote["server"], &vote["verdict"]), (&Value::from(dead), &Value::from("doubt")), "{findings}");
}

#[test]
fn a_doctor_finds_a_slot_that_no_master_serves() {
    let cluster = Cluster::one_node(Kind::Redis);
    cluster.node(0).tell("CONFIG SET cluster-require-full-coverage no");
    cluster.node(0).tell("CLUSTER DELSLOTS 16000");
    let findings = json(&lockctl(&["--json", "doctor", &cluster.url()]).assert().code(1).get_output().stdout);
    let found = finding(&findings, "cluster");
    assert_eq!(found["verdict"], "bad", "{findings}");
    assert!(found["found"].as_str().unwrap().contains("16383 of 16384"), "{findings}");
}

/// Only the refusal that nothing is tracked shows that the server could track.
#[test]
fn a_doctor_does_not_take_any_refusal_for_alarms() {
    let server = Server::start();
    // The command is refused because of its key's type.
    server.tell("SET a b");
    let instead = |words: &[String]| {
        let is_tracking = words[0] == "CLIENT" && words.get(1).is_some_and(|word| word == "TRACKING");
        is_tracking.then(|| ["LPUSH", "a", "b"].map(str::to_owned).to_vec())
    };
    let other = Proxy::disguised(&server, Disguise { name: "kevy", version: "1.39.0", instead });
    let findings = json(&lockctl(&["--json", "doctor", &other.url()]).assert().success().get_output().stdout);
    assert_eq!(verdict(&findings, "alarms").0, "unknown", "{findings}");
}

/// The rights as in docs/protocol.md.
#[test]
fn a_doctor_is_content_with_the_rights_of_one_namespace_and_leaves_nothing() {
    let server = Server::start();
    server.tell(&format!("ACL SETUSER least on >pass ~shop:* ~{{shop:* &cache_lock:* -@all {LEAST_RIGHTS}"));
    let url = server.url().replace("redis://", "redis://least:pass@");
    let findings = json(&lockctl(&["--json", "doctor", &url]).assert().code(1).get_output().stdout);
    assert!(verdict(&findings, "locks").1.contains("--prefix"), "{findings}");
    let prefixed = ["--json", "doctor", &url, "--prefix", "shop"];
    let findings = json(&lockctl(&prefixed).assert().success().get_output().stdout);
    assert_eq!((verdict(&findings, "locks").0, verdict(&findings, "sharing").0), ("good".into(), "doubt".into()));
    assert!(verdict(&findings, "sharing").1.contains("readers and permits"), "{findings}");
    server.tell("ACL SETUSER least +pexpireat +zcard +zremrangebyscore");
    let findings = json(&lockctl(&prefixed).assert().success().get_output().stdout);
    assert_eq!(verdict(&findings, "sharing").0, "good", "{findings}");
    let left = || server.keys().into_iter().filter(|(_, left)| *left == -1).collect::<Vec<_>>();
    assert!(left().is_empty(), "{:?}", left());
}

/// By ability: a server of any name and version may have either command.
#[test]
fn a_doctor_says_how_locks_are_released() {
    let release = |url: &str| {
        let findings = json(&lockctl(&["--json", "doctor", url]).assert().get_output().stdout);
        let found = finding(&findings, "release");
        (found["verdict"].as_str().unwrap().to_owned(), found["found"].as_str().unwrap().to_owned())
    };
    let old = Server::start();
    let (verdict, found) = release(&old.url());
    assert!(verdict == "good" && found.contains("neither"), "{found}");
    let new = Server::of(Kind::Valkey, &[]);
    assert_eq!(release(&new.url()), ("good".to_owned(), "by DELIFEQ".to_owned()));
    new.tell(&format!("ACL SETUSER least on >pass ~* &cache_lock:* -@all {LEAST_RIGHTS}"));
    let (verdict, found) = release(&new.url().replace("redis://", "redis://least:pass@"));
    assert!(verdict == "doubt" && found.contains("DELIFEQ"), "{found}");
    // As in Redis 8.4.
    let instead = |words: &[String]| match words[0].as_str() {
        "DELIFEQ" => Some(vec!["LACKING".to_owned()]),
        "DELEX" if words.len() == 4 => Some(vec!["DELIFEQ".to_owned(), words[1].clone(), words[3].clone()]),
        "DELEX" => Some(vec!["DELIFEQ".to_owned()]),
        _ => None,
    };
    let other = Proxy::disguised(&new, Disguise { name: "kevy", version: "1.39.0", instead });
    assert_eq!(release(&other.url()), ("good".to_owned(), "by DELEX".to_owned()));
}

/// Each master of a cluster has replicas of its own.
#[test]
fn a_doctor_asks_each_master_of_a_cluster_whether_replicas_can_confirm() {
    let cluster = Cluster::start();
    let findings = json(&lockctl(&["--json", "doctor", &cluster.url()]).assert().success().get_output().stdout);
    let waits = findings.as_array().unwrap().iter().filter(|finding| finding["check"] == "replica waits");
    assert_eq!(waits.filter(|finding| finding["verdict"] == "good").count(), 3, "{findings}");
}
