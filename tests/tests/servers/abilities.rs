//! What a server must be able to do. The library checks that, and not the server's name or version.

use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::proxy::{Disguise, Proxy};
use tests::server::{Kind, Server};

const LONG: Duration = Duration::from_secs(10);

/// A server with another name that can do everything.
const ABLE: Disguise = Disguise { name: "kevy", version: "1.39.0", instead: |_| None };

fn is(words: &[String], start: &[&str]) -> bool {
    words.len() >= start.len() && words.iter().zip(start).all(|(word, wanted)| word == wanted)
}

#[expect(clippy::unnecessary_wraps, reason = "a disguise may leave a request unchanged")]
fn words(text: &str) -> Option<Vec<String>> {
    Some(text.split(' ').map(str::to_owned).collect())
}

/// A command that no server knows.
fn unknown() -> Option<Vec<String>> {
    words("LACKING it")
}

/// The same command in RESP2.
#[expect(clippy::unnecessary_wraps, reason = "a disguise may leave a request unchanged")]
fn in_resp2(words: &[String]) -> Option<Vec<String>> {
    let mut words = words.to_vec();
    if words.len() == 1 {
        words.push("2".to_owned());
    } else {
        "2".clone_into(&mut words[1]);
    }
    Some(words)
}

/// Acquires a lock, waits for it in another manager, and hands it off.
async fn use_it(url: &str) {
    let [one, other] = [LockManager::connect(url).await.unwrap(), LockManager::connect(url).await.unwrap()];
    let guard = one.lock("p", "k").fenced(true).acquire().await.unwrap();
    let waiting = other.lock("p", "k").timeout(LONG).acquire();
    let releasing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    };
    let (next, ()) = tokio::join!(waiting, releasing);
    next.unwrap().release().await.unwrap();
}

async fn refused(url: &str) -> String {
    let error = LockManager::connect(url).await.expect_err("it lacks something");
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_server_of_any_name_that_can_do_everything_holds_locks() {
    for (name, version) in [("kevy", "1.39.0"), ("redis", "6.2.14"), ("redis", "unstable"), ("other", ""), ("", "v2")] {
        let server = Server::start();
        let proxy = Proxy::disguised(&server, Disguise { name, version, ..ABLE });
        use_it(&proxy.url()).await;
    }
}

#[tokio::test]
async fn a_server_that_goes_back_to_resp2_when_it_is_asked_for_its_name_holds_locks() {
    let server = Server::start();
    let falls_back = Disguise {
        name: "redis",
        version: "7.0.15",
        instead: |words| if is(words, &["HELLO"]) && words.len() == 1 { in_resp2(words) } else { None },
    };
    use_it(&Proxy::disguised(&server, falls_back).url()).await;
}

#[tokio::test]
async fn a_server_that_answers_in_resp2_is_refused_and_named() {
    let server = Server::start();
    for (name, version) in [("kevy", "1.39.0"), ("redis", "7.2.0")] {
        let instead = |words: &[String]| if is(words, &["HELLO"]) { in_resp2(words) } else { None };
        let proxy = Proxy::disguised(&server, Disguise { name, version, instead });
        let error = refused(&proxy.url()).await;
        assert!(error.contains(&format!("{name} {version} lacks RESP3")), "{error}");
    }
    // It claims to speak RESP3, but its reply to a subscription is no push.
    let instead = |told: &[String]| if is(told, &["SUBSCRIBE"]) { words("ECHO subscribed") } else { None };
    let error = refused(&Proxy::disguised(&server, Disguise { instead, ..ABLE }).url()).await;
    assert!(error.contains("kevy 1.39.0 lacks pushes"), "{error}");
}

#[tokio::test]
async fn a_server_that_lacks_something_is_refused_at_connect_and_both_are_named() {
    type Instead = fn(&[String]) -> Option<Vec<String>>;
    let lacks: [(&str, Instead); 7] = [
        ("`EVALSHA`", |told| if is(told, &["EVALSHA"]) { unknown() } else { None }),
        ("`PEXPIRE … GT`", |told| if is(told, &["PEXPIRE"]) { words("PEXPIRE k") } else { None }),
        ("`ZPOPMIN`", |told| if is(told, &["ZPOPMIN"]) { unknown() } else { None }),
        ("Lua scripts (`EVAL`)", |told| if is(told, &["EVAL"]) { unknown() } else { None }),
        ("`TIME`", |told| if is(told, &["TIME"]) { unknown() } else { None }),
        ("`SUBSCRIBE`", |told| if is(told, &["SUBSCRIBE"]) { unknown() } else { None }),
        ("RESP3 (`HELLO 3`)", |told| if is(told, &["HELLO"]) { words("HELLO 9") } else { None }),
    ];
    let server = Server::start();
    for (what, instead) in lacks {
        let proxies = [(); 3].map(|()| Proxy::disguised(&server, Disguise { instead, ..ABLE }));
        let error = refused(&proxies[0].url()).await;
        let name = if what.starts_with("RESP3") { "what answers there" } else { "kevy 1.39.0" };
        assert!(error.contains(&format!("{name} lacks {what}")) && error.contains("Redis 7.0"), "{what}: {error}");
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let error = refused(&format!("redlock://{}", addresses.join(","))).await;
        assert!(error.contains(&format!("lacks {what}")), "{what}: {error}");
    }
}

#[tokio::test]
async fn what_a_server_can_do_is_found_out_without_a_change() {
    let server = Server::start();
    let changes = || {
        let facts: String = server.ask("INFO persistence");
        facts.lines().find(|line| line.starts_with("rdb_changes_since_last_save")).unwrap().to_owned()
    };
    let before = changes();
    let asked = |proxy: &Proxy| {
        let seen = proxy.seen();
        ["EVAL", "EVALSHA", "PEXPIRE", "ZPOPMIN"].map(|name| seen.iter().filter(|words| words[0] == name).count())
    };
    let known = Proxy::before(&server);
    let locks = LockManager::connect(&known.url()).await.unwrap();
    assert!(asked(&known).iter().all(|count| *count > 0), "{:?}", asked(&known));
    let other = Proxy::disguised(&server, ABLE);
    let locks = (locks, LockManager::connect(&other.url()).await.unwrap());
    assert!(asked(&other).iter().all(|count| *count > 0), "{:?}", asked(&other));
    assert_eq!(changes(), before);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    drop(locks);
    // A user with rights to one prefix only must not look like a server that lacks something.
    server.tell("ACL SETUSER poor on >canary ~p:* ~{p:* &cache_lock:* +@all");
    use_it(&other.url().replace("redis://", "redis://poor:canary@")).await;
}

/// Rule 26, on Valkey 9. A user who may not use the command releases by scripts.
#[tokio::test]
async fn a_server_with_a_command_for_it_releases_locks_without_a_script() {
    let server = Server::of(Kind::Valkey, &[]);
    server.tell("ACL SETUSER poor on >canary ~* &cache_lock:* +@all -delifeq");
    let calls = |name: &str| server.commandstats().of(name);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let before = calls("delifeq");
    for _ in 0..10 {
        locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
    // A connection uses `EVAL` first, and the digest when it uses the script again.
    assert_eq!((calls("delifeq") - before, calls("evalsha")), (10, 0));
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    use_it(&server.url()).await;

    let (before, scripts) = (calls("delifeq"), calls("eval") + calls("evalsha"));
    let poor = LockManager::connect(&server.url().replace("redis://", "redis://poor:canary@")).await.unwrap();
    for _ in 0..10 {
        poor.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
    assert!(calls("eval") + calls("evalsha") >= scripts + 10);
    assert_eq!(calls("delifeq") - before, 0, "a refused command must not count as a call");
    let denied: Vec<redis::Value> = server.ask("ACL LOG");
    assert_eq!(denied.len(), 1, "there must be one per connection: {denied:?}");
    assert_eq!(server.owner("p:k"), None);
}

/// Hosted servers disable commands, which does not show in their version.
#[tokio::test]
async fn a_known_server_without_a_command_is_refused_at_connect_and_the_command_is_named() {
    for kind in [Kind::Redis, Kind::Valkey] {
        for (command, what) in [
            ("EVAL", "Lua scripts (`EVAL`)"),
            ("EVALSHA", "`EVALSHA`"),
            ("PEXPIRE", "`PEXPIRE … GT`"),
            ("ZPOPMIN", "`ZPOPMIN`"),
        ] {
            let server = Server::of(kind, &["--rename-command", command, "taken-away"]);
            let error = refused(&server.url()).await;
            assert!(error.contains(&format!("lacks {what}")), "{kind:?}, {command}: {error}");
        }
    }
}
