//! The locks connect as a user without some right.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::events::Events;
use tests::patience::{NOISE, eventually};
use tests::server::{Kind, Server};

use crate::{LONG, TIMEOUT, manager, wait_until_confirmed};

/// The rights in docs/protocol.md.
const COMMANDS: [&str; 16] = [
    "+set",
    "+get",
    "+del",
    "+pexpire",
    "+pttl",
    "+exists",
    "+zadd",
    "+zpopmin",
    "+zrange",
    "+zrem",
    "+zscore",
    "+time",
    "+publish",
    "+subscribe",
    "+eval",
    "+evalsha",
];
/// The additional rights for readers and permits.
const SHARED_COMMANDS: [&str; 3] = ["+pexpireat", "+zcard", "+zremrangebyscore"];
const ANY_KEY: &str = "~*";
const CHANNELS: &str = "&cache_lock:*";

/// How long a claim or a queue may block others.
const BRIEFLY: Duration = Duration::from_secs(3);

/// A server with a user `least` who has these rights, and the user's URL.
fn with_rights(rights: &[&str]) -> (Server, String) {
    with_rights_on(Server::start(), rights)
}

fn with_rights_on(server: Server, rights: &[&str]) -> (Server, String) {
    server.tell(&format!("ACL SETUSER least on >canary-7f3a -@all {}", rights.join(" ")));
    let url = server.url().replace("redis://", "redis://least:canary-7f3a@");
    (server, url)
}

fn all_rights() -> Vec<&'static str> {
    COMMANDS.into_iter().chain([ANY_KEY, CHANNELS]).collect()
}

/// Uses everything that locks do. Returns how long a hand-off between two managers took.
async fn use_it_all(server: &Server, url: &str) -> Result<Duration, LockError> {
    let (north, south) = (LockManager::connect(url).await?, LockManager::connect(url).await?);
    // A short hold, one that is confirmed and extended, and below one that is renewed.
    north.lock("p", "k").acquire().await?.release().await?;
    let guard = north.lock("p", "k").fenced(true).expire(Duration::from_secs(20)).renew(false).acquire().await?;
    guard.extend(Duration::from_secs(25)).await?;
    let waiter = tokio::spawn(async move {
        let guard = south.lock("p", "k").fenced(true).timeout(LONG).acquire().await?;
        let granted = Instant::now();
        guard.release().await?;
        south.shutdown().await;
        Ok::<_, LockError>(granted)
    });
    let is_queued = || waiter.is_finished() || server.keys().contains_key("{p:k}:queue");
    eventually("the waiter is queued", BRIEFLY, is_queued).await;
    if waiter.is_finished() {
        waiter.await.unwrap()?;
        unreachable!("it was granted a lock that is held");
    }
    let released = Instant::now();
    guard.release().await?;
    let granted = waiter.await.unwrap()?;
    let renewed = north.lock("p", "k").expire(Duration::from_millis(300)).renew(true).acquire().await?;
    tokio::time::sleep(Duration::from_millis(700)).await;
    renewed.release().await?;
    // A hold that is dropped, and a request that gives up.
    drop(north.lock("p", "k").acquire().await?);
    eventually("the dropped lock is free", BRIEFLY, || server.owner("p:k").is_none()).await;
    server.tell("SET p:k somebody PX 60000");
    let error = north.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    server.tell("DEL p:k");
    if !error.is_timeout() {
        return Err(error);
    }
    north.shutdown().await;
    Ok(granted.saturating_duration_since(released))
}

/// Waits until no lock and no queue is left, for at most the time that an abandoned lock may block others.
async fn wait_until_nothing_is_left(server: &Server) {
    let blocks = |server: &Server| {
        server.keys().into_iter().filter(|(key, _)| key == "p:k" || key.ends_with(":queue")).collect::<Vec<_>>()
    };
    eventually("nothing blocks others any more", BRIEFLY + NOISE, || blocks(server).is_empty()).await;
}

#[tokio::test]
async fn the_least_rights_that_the_docs_name_are_enough() {
    let protocol = include_str!("../../../docs/protocol.md");
    let listed = protocol.split("ACL SETUSER locks").nth(1).unwrap().split("```").next().unwrap();
    let mut listed: Vec<_> = listed.split_whitespace().filter(|word| word.starts_with(['+', '~', '&'])).collect();
    let mut rights = all_rights();
    listed.sort_unstable();
    rights.sort_unstable();
    assert_eq!(listed, rights, "the docs and this test name different rights");
    let (server, url) = with_rights(&rights);
    let hand_off = use_it_all(&server, &url).await.unwrap();
    assert!(hand_off < Duration::from_millis(500), "{hand_off:?}");
    // The client's set-up tries more commands, and works without them. So do the check of the memory policy, and a release by a
    // command that not every server has (rule 26).
    let denied: Vec<std::collections::BTreeMap<String, redis::Value>> = server.ask("ACL LOG");
    for entry in denied {
        let object = format!("{:?}", entry["object"]);
        assert!(
            ["client", "info", "ping", "delifeq", "delex", "getrange"].iter().any(|known| object.contains(known)),
            "{object} is needed, too"
        );
    }
}

#[tokio::test]
async fn a_missing_right_is_named_and_leaves_no_lock_behind() {
    let events = Events::of_this_process();
    for missing in COMMANDS.into_iter().filter(|right| *right != "+publish") {
        let rights: Vec<_> = all_rights().into_iter().filter(|right| *right != missing).collect();
        let (server, url) = with_rights(&rights);
        let error = use_it_all(&server, &url).await.expect_err(missing);
        wait_until_nothing_is_left(&server).await;
        let text = error.to_string();
        let name = missing.trim_start_matches('+');
        if error.is_lost() {
            // The hold ended with its claim. An event reports what the server refused to the keeper.
            assert!(!events.with(&["WARN", missing]).is_empty(), "{missing}: {error}: {:#?}", events.with(&["WARN"]));
        } else {
            assert!(text.contains(missing) || text.contains(&format!("'{name}'")), "{missing}: {text}");
            assert!(text.contains("docs/protocol.md"), "{missing}: {text}");
        }
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

#[tokio::test]
async fn a_body_under_a_lock_that_cannot_be_released_completes_and_the_reason_is_logged() {
    let events = Events::of_this_process();
    // The last one has rights to all keys except the helper keys.
    for (missing, told) in [("+del", "+del"), ("+exists", "+exists"), ("+eval", "'eval'"), (ANY_KEY, "~{p:k}:queue")] {
        let mut rights: Vec<_> = all_rights().into_iter().filter(|right| *right != missing).collect();
        if missing == ANY_KEY {
            rights.push("~p:*");
        }
        let (server, url) = with_rights(&rights);
        let manager = manager(&url).await;
        let body = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            7
        };
        assert_eq!(manager.lock("p", "k").run(body).await.unwrap(), 7);
        eventually(missing, BRIEFLY, || !events.with(&["WARN", "after a body", "p:k", told]).is_empty()).await;
        wait_until_nothing_is_left(&server).await;
    }
}

/// Waiters get no message, and get the lock with their next ask.
#[tokio::test]
async fn without_the_right_to_publish_hand_offs_take_a_second_and_nothing_else_changes() {
    let rights: Vec<_> = all_rights().into_iter().filter(|right| *right != "+publish").collect();
    let (server, url) = with_rights(&rights);
    let hand_off = use_it_all(&server, &url).await.unwrap();
    assert!(hand_off < Duration::from_secs(3) + NOISE, "{hand_off:?}");
    wait_until_nothing_is_left(&server).await;
}

#[tokio::test]
async fn without_the_right_to_the_channels_connecting_names_it() {
    let mut rights = all_rights();
    rights.retain(|right| *right != CHANNELS);
    let (_server, url) = with_rights(&rights);
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains(CHANNELS), "{error}");
}

#[tokio::test]
async fn a_lock_whose_name_is_not_allowed_is_refused_at_once_and_others_are_not() {
    let mut rights = all_rights();
    rights.retain(|right| *right != ANY_KEY);
    rights.extend(["~p:*", "~{p:*"]);
    let (server, url) = with_rights(&rights);
    use_it_all(&server, &url).await.unwrap();
    let manager = manager(&url).await;
    let start = Instant::now();
    let error = manager.lock("q", "k").timeout(LONG).acquire().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains("`q:k`") && error.to_string().contains("the lock's name"), "{error}");
    assert_eq!(server.owner("q:k"), None);
}

/// The user may use the locks' names but not their helper keys. The first release shows it.
#[tokio::test]
async fn without_the_right_to_the_helper_keys_the_lock_is_released_anyway() {
    let mut rights = all_rights();
    rights.retain(|right| *right != ANY_KEY);
    rights.push("~p:*");
    let (server, url) = with_rights(&rights);
    let manager = manager(&url).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    let error = guard.release().await.unwrap_err();
    assert!(error.to_string().contains("~{p:k}:queue"), "{error}");
    wait_until_nothing_is_left(&server).await;
    let error = manager.lock("p", "k").fenced(true).acquire().await.unwrap_err();
    assert!(error.to_string().contains("~{p:k}:fence"), "{error}");
    wait_until_nothing_is_left(&server).await;
}

/// One command releases many dropped guards. The server refuses it because of one of them.
#[tokio::test]
async fn one_lock_that_may_not_be_released_does_not_keep_the_others() {
    let mut rights = all_rights();
    rights.retain(|right| *right != ANY_KEY);
    rights.extend(["~p:*", "~{p:*", "~q:*"]);
    let (server, url) = with_rights(&rights);
    let manager = manager(&url).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(manager.lock("p", &number).acquire().await.unwrap());
        guards.push(manager.lock("q", &number).acquire().await.unwrap());
    }
    for guard in &guards {
        wait_until_confirmed(guard, LONG).await;
    }
    drop(guards);
    eventually("all are free", BRIEFLY, || server.keys().is_empty()).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn rights_that_are_taken_away_later_are_named_as_well() {
    let (server, url) = with_rights(&all_rights());
    let manager = manager(&url).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    server.tell("ACL SETUSER least -del");
    let error = guard.release().await.unwrap_err();
    assert!(error.to_string().contains("+del"), "{error}");
    wait_until_nothing_is_left(&server).await;
    server.tell("ACL SETUSER least +del");
    manager.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    // Deleting a user also closes its connections.
    server.tell("ACL DELUSER least");
    let start = Instant::now();
    let error = manager.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

/// Uses everything that shared locks do.
async fn share_it_all(url: &str) -> Result<(), LockError> {
    let (north, south) = (LockManager::connect(url).await?, LockManager::connect(url).await?);
    let long = |manager: &LockManager| manager.lock("p", "k").timeout(LONG);
    let readers = [long(&north).read().fenced(true).acquire().await?, long(&south).read().acquire().await?];
    let waiting = long(&south).acquire();
    let release = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        for reader in readers {
            reader.release().await?;
        }
        Ok::<_, LockError>(())
    };
    let (writer, released) = tokio::join!(waiting, release);
    released?;
    writer?.release().await?;
    let permits = [long(&north).permits(1).acquire().await?];
    assert!(south.lock("p", "k").permits(1).try_acquire().await?.is_none());
    let waiting = long(&south).permits(1).acquire();
    let (next, ()) = tokio::join!(waiting, async { drop(permits) });
    next?.release().await?;
    north.shutdown().await;
    south.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn the_rights_that_the_docs_name_for_readers_and_permits_are_enough_and_each_is_named_when_it_is_missing() {
    let protocol = include_str!("../../../docs/protocol.md");
    let listed = protocol.split("for readers and permits:").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), SHARED_COMMANDS);
    let all: Vec<_> = all_rights().into_iter().chain(SHARED_COMMANDS).collect();
    let (_server, url) = with_rights(&all);
    share_it_all(&url).await.unwrap();
    for missing in SHARED_COMMANDS {
        let rights: Vec<_> = all.iter().copied().filter(|right| *right != missing).collect();
        let (server, url) = with_rights(&rights);
        let error = share_it_all(&url).await.expect_err(missing).to_string();
        assert!(error.contains(missing) && error.contains("docs/protocol.md"), "{missing}: {error}");
        wait_until_nothing_is_left(&server).await;
    }
}

/// Each kind of server has its own error text for what a script may not do.
#[tokio::test]
async fn a_right_that_a_script_lacks_is_named_on_each_kind_of_server() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let rights: Vec<_> = all_rights().into_iter().filter(|right| *right != "+pexpire").collect();
        let (server, url) = with_rights_on(Server::of(kind, &[]), &rights);
        let guard = LockManager::connect(&url).await.unwrap().lock("p", "k").acquire().await.unwrap();
        let error = guard.extend(LONG).await.expect_err("it is refused").to_string();
        assert!(error.contains("+pexpire") && error.contains("docs/protocol.md"), "{kind:?}: {error}");
        drop(guard);
        wait_until_nothing_is_left(&server).await;
    }
}
