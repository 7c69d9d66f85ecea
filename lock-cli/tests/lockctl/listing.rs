//! `list` and `watch`: which locks are shown, and what is reported about the others.

use lock_runtime::{LockGuard, LockManager};
use tests::cluster::Cluster;
use tests::quorum::Servers;
use tests::server::{Kind, Server};

use crate::{Held, json, on, text};

/// How many locks a test holds that counts them.
const LOCKS: usize = 20;

/// A runtime, and the locks held in it.
fn holding(url: &str, count: usize) -> (tokio::runtime::Runtime, Vec<LockGuard>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guards = runtime.block_on(async {
        let locks = LockManager::connect(url).await.unwrap();
        let mut guards = Vec::new();
        for number in 0..count {
            guards.push(locks.lock("order", &number).acquire().await.unwrap());
        }
        guards
    });
    (runtime, guards)
}

/// The same URL, for a user without these rights.
fn without(server: &Server, rights: &str) -> String {
    server.tell(&format!("ACL SETUSER other on >pass ~* &* +@all {rights}"));
    server.url().replace("redis://", "redis://other:pass@")
}

#[test]
fn a_list_has_the_locks_that_are_held_and_nothing_else() {
    let held = Held::new("l");
    let url = held.server.url();
    let guards = held.runtime.block_on(async {
        let mut guards = Vec::new();
        for number in 0..30_u32 {
            guards.push(held.locks.lock("order", &number).fenced(true).acquire().await.unwrap());
        }
        guards.push(held.locks.lock("stock", "a b").acquire().await.unwrap());
        guards
    });
    held.server.tell("SET order:cache value");
    held.server.tell("RPUSH order:list value");
    for number in 0..3000 {
        held.server.tell(&format!("SET other:{number} value"));
    }
    let before = held.server.commandstats();
    let all = json(&on(&url, &["--json", "list"]).assert().success().get_output().stdout);
    assert_eq!(all.as_array().unwrap().len(), guards.len());
    assert_eq!(all[30]["name"], "stock:a b");
    let calls = held.server.commandstats().since(&before);
    assert_eq!(calls.of("keys"), 0, "KEYS stops the server");
    assert!(calls.of("scan") >= 3);
    let scripts = calls.of("evalsha") + calls.of("eval");
    assert!(scripts <= 40, "a key that is not a lock costs no script: {scripts}");
    let some = json(&on(&url, &["--json", "list", "order:1*"]).assert().success().get_output().stdout);
    assert_eq!(some.as_array().unwrap().len(), 11);
    let few = on(&url, &["list", "--limit", "5"]).assert().success();
    assert_eq!(text(&few.get_output().stdout).lines().count(), 6);
    assert!(text(&few.get_output().stderr).contains("--limit"), "{few}");
    let bounded = on(&url, &["list", "--max-keys", "1"]).assert().success();
    assert!(text(&bounded.get_output().stderr).contains("--max-keys"), "{bounded}");
}

#[test]
fn a_list_of_shared_locks_has_those_that_are_held() {
    let held = Held::new("l");
    let (_reader, _permit) = held.runtime.block_on(async {
        let reader = held.locks.lock("order", &1).read().acquire().await.unwrap();
        (reader, held.locks.lock("order", &2).permits(3).acquire().await.unwrap())
    });
    let all = json(&on(&held.server.url(), &["--json", "list"]).assert().success().get_output().stdout);
    assert_eq!((&all[0]["mode"], &all[1]["mode"]), (&"read".into(), &"permits of 3".into()), "{all}");
}

#[test]
fn nobody_is_told_that_no_lock_is_held_who_may_not_look() {
    let server = Server::start();
    let _held = holding(&server.url(), 1);
    for rights in ["-evalsha -eval", "-get -getrange"] {
        let refused = on(&without(&server, rights), &["list"]).assert().code(69);
        assert!(text(&refused.get_output().stdout).is_empty(), "{refused}");
        assert!(text(&refused.get_output().stderr).contains("Rights"), "{refused}");
    }
}

/// What the other servers know is shown anyway.
#[test]
fn a_list_names_a_server_that_does_not_answer() {
    let (mut cluster, mut quorum) = (Cluster::of(Kind::Redis), Servers::of(Kind::Redis, 3));
    let (cluster_url, quorum_url) = (cluster.url(), quorum.url());
    let _held = (holding(&cluster_url, LOCKS), holding(&quorum_url, LOCKS));
    let of_dead = cluster.node(1).keys().len();
    let dead = [cluster.node(1).address(), quorum.server(1).address()];
    cluster.node_mut(1).kill();
    quorum.server_mut(1).kill();
    for (url, dead, seen) in [(cluster_url, &dead[0], LOCKS - of_dead), (quorum_url, &dead[1], LOCKS)] {
        for verb in [&["list"][..], &["watch", "--count", "1"]] {
            let listed = on(&url, &[&["--json"], verb].concat()).assert().code(69);
            assert_eq!(json(&listed.get_output().stdout).as_array().unwrap().len(), seen, "{url}: {listed}");
            let told = text(&listed.get_output().stderr);
            assert!(told.contains(dead) && !told.contains("+scan"), "{url}: {told}");
        }
    }
}

#[test]
fn a_list_says_when_its_limit_hides_locks() {
    let is_cut = |url: &str, limit: usize| {
        let listed = on(url, &["--json", "list", "--limit", &limit.to_string()]).assert().success();
        assert_eq!(json(&listed.get_output().stdout).as_array().unwrap().len(), limit, "{url}");
        text(&listed.get_output().stderr).contains("--limit")
    };
    // The server names all of them in one answer, and 100 are examined together.
    let server = Server::start();
    let _one = holding(&server.url(), 110);
    assert!(is_cut(&server.url(), 100) && !is_cut(&server.url(), 110));
    let cluster = Cluster::of(Kind::Redis);
    let _several = holding(&cluster.url(), LOCKS);
    for limit in 1..LOCKS {
        assert!(is_cut(&cluster.url(), limit), "{limit}");
    }
    assert!(!is_cut(&cluster.url(), LOCKS));
}

#[test]
fn the_exit_code_of_watch_is_that_of_its_last_look() {
    let server = Server::start();
    let url = without(&server, "-scan");
    let refused = on(&url, &["watch", "--count", "2", "--interval", "50ms"]).assert().code(69);
    assert!(text(&refused.get_output().stderr).contains("+scan"), "{refused}");
    on(&server.url(), &["watch", "--count", "2", "--interval", "50ms"]).assert().success();
}
