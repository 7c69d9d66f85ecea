//! `who`, `release` and `bench`; and all verbs on every kind of server.

use lock_runtime::LockManager;
use serde_json::Value;
use tests::cluster::Cluster;
use tests::quorum::Servers;
use tests::sentinel::Sentinels;
use tests::server::{Kind, Server};

use tests::patience::eventually_blocking;

use crate::{Held, LEAST_RIGHTS, SOON, json, lockctl, on, start, text};

#[test]
fn who_names_the_holder_while_it_holds() {
    let held = Held::new("till 3");
    let url = held.server.url();
    let free = on(&url, &["who", "order:7"]).assert().success();
    let told = text(&free.get_output().stdout);
    assert!(told.starts_with("free") && told.contains("namespace"), "{told}");
    assert_eq!(json(&on(&url, &["--json", "who", "order:7"]).assert().success().get_output().stdout), Value::Null);
    let _guard = held.runtime.block_on(held.locks.lock("order", &7).acquire()).unwrap();
    let shown = on(&url, &["who", "order:7"]).assert().success();
    let shown = text(&shown.get_output().stdout);
    assert!(shown.contains("till 3") && shown.contains("exclusive") && shown.contains("nobody"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "colours go to a terminal only: {shown:?}");
    let lock = json(&on(&url, &["who", "order:7", "--json"]).assert().success().get_output().stdout);
    assert_eq!((&lock["holder"], &lock["forced"]), (&Value::from("till 3"), &Value::from(false)));
    assert!(lock["remaining_ms"].as_u64().unwrap() > 1000, "{lock}");
}

#[test]
fn a_lock_that_rests_is_not_shown_as_held() {
    let held = Held::new("till 3");
    let (url, day) = (held.server.url(), std::time::Duration::from_hours(24));
    let expected = "nobody, rests after till 3";
    held.runtime.block_on(held.locks.lock("report", "daily").at_least(day).run(async {})).unwrap();
    held.runtime.block_on(held.locks.shutdown());
    for words in [&["who", "report:daily"][..], &["list"]] {
        let shown = on(&url, words).assert().success();
        assert!(text(&shown.get_output().stdout).contains(expected), "{shown}");
    }
    let lock = json(&on(&url, &["who", "report:daily", "--json"]).assert().success().get_output().stdout);
    assert_eq!((&lock["rests"], &lock["holder"]), (&Value::from(true), &Value::from("till 3")));
}

#[test]
fn a_lock_that_waits_for_its_adopter_is_not_shown_as_held() {
    let held = Held::new("till 3");
    let (url, expected) = (held.server.url(), "nobody, waits for its adopter after till 3");
    let ticket = held.runtime.block_on(async {
        let guard = held.locks.lock("import", &7).acquire().await.unwrap();
        guard.into_ticket(std::time::Duration::from_mins(1)).await.unwrap()
    });
    for words in [&["who", "import:7"][..], &["list"]] {
        let shown = on(&url, words).assert().success();
        assert!(text(&shown.get_output().stdout).contains(expected), "{shown}");
        assert!(!text(&shown.get_output().stdout).contains("|ticket"), "a ticket is a secret");
    }
    let lock = json(&on(&url, &["who", "import:7", "--json"]).assert().success().get_output().stdout);
    assert_eq!((&lock["awaits_adopter"], &lock["holder"]), (&Value::from(true), &Value::from("till 3")));
    drop(held.runtime.block_on(held.locks.adopt(ticket)).unwrap());
}

#[test]
fn a_lock_of_another_client_is_shown_without_a_name() {
    let server = Server::start();
    server.tell("SET order:8 somebody PX 60000");
    let shown = on(&server.url(), &["who", "order:8"]).assert().success();
    assert!(text(&shown.get_output().stdout).contains("another kind of client"), "{shown}");
    server.tell("SET order:9 somebody");
    let shown = on(&server.url(), &["who", "order:9"]).assert().success();
    assert!(text(&shown.get_output().stdout).contains("no end"), "{shown}");
}

#[test]
fn a_release_by_force_stops_the_holder_and_says_whether_there_was_one() {
    let held = Held::new("l");
    let url = held.server.url();
    let guard = held.runtime.block_on(held.locks.lock("order", &7).acquire()).unwrap();
    lockctl(&["release", "order:7", "--url", &url]).assert().code(2);
    assert!(guard.is_valid(), "without --force nothing happens");
    on(&url, &["release", "--force", "order:7"]).assert().success();
    assert!(!guard.is_valid());
    let none = on(&url, &["--json", "release", "--force", "order:7"]).assert().code(1);
    assert_eq!(json(&none.get_output().stdout)["released"], false);
    let told = held.runtime.block_on(guard.release()).unwrap_err();
    assert!(told.to_string().contains("released by force"), "{told}");
}

/// Two holders share a lock by permits, and a third one waits.
#[test]
fn a_release_by_force_names_all_that_it_takes_and_takes_one_permit_of_a_named_holder() {
    let north = Held::new("north");
    let url = north.server.url();
    let connecting = LockManager::builder().url(&url).label("south").connect();
    let south = north.runtime.block_on(connecting).unwrap();
    let permit = |locks: &LockManager| {
        let request = locks.lock("render", &7).permits(3).timeout(SOON).expire(SOON * 3);
        north.runtime.block_on(request.acquire()).unwrap()
    };
    let (first, second, other) = (permit(&north.locks), permit(&north.locks), permit(&south));
    let waiting = north.runtime.spawn(south.lock("render", &7).permits(3).timeout(SOON).acquire());
    eventually_blocking("it waits", SOON, || north.server.keys().contains_key("{render:7}:queue"));
    let taken = |words: &[&str]| {
        let words = [&["--json", "release", "--force", "render:7"], words].concat();
        json(&on(&url, &words).assert().success().get_output().stdout)["holders"].clone()
    };
    let begun = std::time::Instant::now();
    assert_eq!(taken(&["--holder", "north"]), serde_json::json!(["north"]));
    // The oldest of the two. The waiter gets its place as soon as its holder has stopped.
    let third = north.runtime.block_on(waiting).unwrap().unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(!first.is_valid() && second.is_valid() && other.is_valid() && third.is_valid());
    let told = north.runtime.block_on(first.release()).unwrap_err();
    assert!(told.to_string().contains("released by force"), "{told}");
    // The mistake is named, and nothing is taken.
    for words in [&["--holder", "west"][..], &["--holder", "north", "--foreign"]] {
        on(&url, &[&["release", "--force", "render:7"], words].concat()).assert().code(2);
    }
    let alone = north.runtime.block_on(north.locks.lock("order", &7).acquire()).unwrap();
    on(&url, &["release", "--force", "order:7", "--holder", "north"]).assert().code(2);
    assert!(alone.is_valid());
    let all = text(&on(&url, &["release", "--force", "render:7"]).assert().success().get_output().stdout);
    assert!(all.contains("from all 3 who held it: north, south, south"), "{all}");
    eventually_blocking("all are told", SOON, || [&second, &other, &third].iter().all(|guard| !guard.is_valid()));
}

/// The readers of a process share one lease.
#[test]
fn a_release_by_force_takes_the_readers_of_one_process() {
    let north = Held::new("north");
    let url = north.server.url();
    let south = north.runtime.block_on(LockManager::builder().url(&url).label("south").connect()).unwrap();
    let read = |locks: &LockManager| north.runtime.block_on(locks.lock("page", &7).read().acquire()).unwrap();
    let (reader, other) = (read(&north.locks), read(&south));
    on(&url, &["release", "--force", "page:7", "--holder", "north"]).assert().success();
    assert!(!reader.is_valid() && other.is_valid());
    drop(other);
    // Nothing is left of the lease that was taken.
    let writer = north.runtime.block_on(south.lock("page", &7).timeout(SOON).acquire()).unwrap();
    assert!(writer.is_valid());
}

#[test]
fn a_release_by_force_does_not_delete_what_an_application_keeps() {
    let server = Server::start();
    server.tell("SET user:42:profile {}");
    for words in [&["release", "--force", "user:42:profile"][..], &["--json", "release", "--force", "user:42:profile"]]
    {
        let refused = on(&server.url(), words).assert().code(2);
        let told = text(&refused.get_output().stderr);
        assert!(told.contains("another kind of client") && told.contains("--foreign"), "{told}");
    }
    assert_eq!(server.owner("user:42:profile").as_deref(), Some("{}"));
    on(&server.url(), &["release", "--force", "--foreign", "user:42:profile"]).assert().success();
    // A value that expires by itself is a lock of another kind of client.
    server.tell("SET order:8 somebody PX 60000");
    on(&server.url(), &["release", "--force", "order:8"]).assert().success();
    assert!(server.keys().is_empty());
}

#[test]
fn it_works_at_every_place() {
    let (cluster, sentinels, quorum) =
        (Cluster::of(Kind::Redis), Sentinels::of(Kind::Redis, 1), Servers::of(Kind::Redis, 3));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (url, can_force) in [(cluster.url(), true), (sentinels.url(), true), (quorum.url(), false)] {
        let locks = runtime.block_on(lock_runtime::LockManager::connect(&url)).unwrap();
        let guards = runtime.block_on(async {
            let mut guards = Vec::new();
            for number in 0..20_u32 {
                guards.push(locks.lock("order", &number).acquire().await.unwrap());
            }
            guards
        });
        let all = json(&on(&url, &["--json", "list"]).assert().success().get_output().stdout);
        assert_eq!(all.as_array().unwrap().len(), guards.len(), "{url}");
        let who = on(&url, &["who", "order:3"]).assert().success();
        assert!(text(&who.get_output().stdout).contains("holder"), "{url}");
        on(&url, &["run", "order:100", "--", "true"]).assert().success();
        on(&url, &["run", "order:3", "--timeout", "0", "--", "true"]).assert().code(75);
        on(&url, &["release", "--force", "order:3"]).assert().code(if can_force { 0 } else { 2 });
        let findings = on(&url, &["--json", "doctor"]).assert().success();
        let trial = json(&findings.get_output().stdout);
        assert_eq!(trial.as_array().unwrap().last().unwrap()["verdict"], "good", "{url}: {trial}");
    }
}

#[test]
fn the_server_away_is_69_and_a_mistake_is_2() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    for arguments in [&["list"][..], &["who", "a:b"], &["run", "a:b", "--", "true"], &["doctor"], &["bench"]] {
        let away = on(&url, arguments).assert().code(69);
        assert!(text(&away.get_output().stderr).contains(&server.address()), "{away}");
    }
    let missing = lockctl(&["list"]).assert().code(2);
    assert!(text(&missing.get_output().stderr).contains("REDIS_URL"), "{missing}");
    let alone = lockctl(&["--url", "memory://", "list"]).assert().code(2);
    assert!(text(&alone.get_output().stderr).contains("memory://"), "{alone}");
    lockctl(&["--url", "http://a", "list"]).assert().code(2);
    on(&url, &["nonsense"]).assert().code(2);
    server.restart();
    on(&url, &["who", "a{b"]).assert().code(2);
}

#[test]
fn the_password_of_a_url_is_not_shown() {
    let held = Server::with_password("canary-7f3a");
    let url = held.url();
    assert!(url.contains("canary"), "{url}");
    for arguments in [&["--help"][..], &["list"], &["doctor"], &["nonsense"], &["who", "--help"]] {
        let shown = on(&url, arguments).output().unwrap();
        assert!(!text(&shown.stdout).contains("canary") && !text(&shown.stderr).contains("canary"), "{shown:?}");
    }
}

#[test]
fn the_least_rights_are_enough() {
    let held = Held::new("till 3");
    held.server.tell(&format!("ACL SETUSER least on >pass ~* &cache_lock:* -@all {LEAST_RIGHTS}"));
    let url = held.server.url().replace("redis://", "redis://least:pass@");
    let findings = json(&on(&url, &["--json", "doctor"]).assert().success().get_output().stdout);
    let trial = findings.as_array().unwrap().iter().find(|finding| finding["check"] == "locks").unwrap();
    assert_eq!(trial["verdict"], "good", "{findings}");
    let _guard = held.runtime.block_on(held.locks.lock("order", &7).acquire()).unwrap();
    let waiter = start(&held.server.url(), &["run", "order:7", "--timeout", "20s", "true"]);
    eventually_blocking("it waits", SOON, || held.server.keys().contains_key("{order:7}:queue"));
    let waiting = |url: &str| {
        let shown = json(&on(url, &["--json", "who", "order:7"]).assert().success().get_output().stdout);
        (shown["holder"].clone(), shown["waiting"].as_array().unwrap().len())
    };
    assert_eq!(waiting(&url), (Value::from("till 3"), 1));
    on(&url, &["release", "--force", "order:7"]).assert().success();
    assert_eq!(waiter.wait_with_output().unwrap().status.code(), Some(0));
    // A missing right is named.
    let refused = on(&url, &["list"]).assert().code(69);
    assert!(text(&refused.get_output().stderr).contains("+scan"), "{refused}");
}

/// The rights of a user who only looks, as in docs/protocol.md.
#[test]
fn a_user_that_only_looks_needs_few_rights_and_can_take_nothing() {
    let held = Held::new("till 3");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md")).unwrap();
    let rights = page.lines().find(|line| line.starts_with("ACL SETUSER looks ")).expect("the page has them");
    held.server.tell(rights);
    let url = held.server.url().replace("redis://", "redis://looks:secret@");
    let guard = held.runtime.block_on(held.locks.lock("order", &7).fenced(true).acquire()).unwrap();
    let _reader = held.runtime.block_on(held.locks.lock("page", &7).read().acquire()).unwrap();
    let waiter = start(&held.server.url(), &["run", "order:7", "--timeout", "20s", "true"]);
    eventually_blocking("it waits", SOON, || held.server.keys().contains_key("{order:7}:queue"));
    let shown = json(&on(&url, &["--json", "who", "order:7"]).assert().success().get_output().stdout);
    assert_eq!((&shown["holder"], shown["waiting"].as_array().unwrap().len()), (&Value::from("till 3"), 1));
    assert_eq!(json(&on(&url, &["--json", "who", "order:8"]).assert().success().get_output().stdout), Value::Null);
    for verb in [&["--json", "list"][..], &["--json", "watch", "--count", "1"]] {
        let all = text(&on(&url, verb).assert().success().get_output().stdout);
        assert!(all.contains("order:7") && all.contains("page:7"), "{all}");
    }
    for verb in [&["release", "--force", "order:7"][..], &["run", "order:9", "true"]] {
        let refused = on(&url, verb).assert().code(69);
        assert!(text(&refused.get_output().stderr).contains("Rights"), "{refused}");
    }
    let first = held.runtime.block_on(held.locks.inspect("order", &7)).unwrap().unwrap();
    assert!(!first.is_forced && first.is_held_here);
    drop(guard);
    assert_eq!(waiter.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_bench_measures_and_leaves_nothing() {
    let server = Server::start();
    let shown = lockctl(&["--json", "bench", &server.url(), "--time", "0.1", "--tasks", "4"]).assert().success();
    let cases = json(&shown.get_output().stdout);
    assert_eq!(cases.as_array().unwrap().len(), 4);
    assert!(cases.as_array().unwrap().iter().all(|case| case["locks_per_second"].as_u64().unwrap() > 0), "{cases}");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lockctl"));
    let ended =
        command.args(["completions", "bash"]).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!((text(&ended.stderr).as_str(), ended.status.code()), ("", Some(141)));
}
