//! The locks connect as a user with exactly the rights that docs/protocol.md names for the place, or with one less.
//! The tests for a single server are in `matrix`.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use lock_runtime::{LockError, LockManager};
use tests::cluster::Cluster;
use tests::events::Events;
use tests::patience::{NOISE, eventually};
use tests::quorum::Servers;
use tests::sentinel::Sentinels;
use tests::server::Server;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(300);
/// How long a claim or a queue may block others.
const BRIEFLY: Duration = Duration::from_secs(3);

/// The rights that a place needs in addition to those for a single server, from the docs.
fn documented(place: &str) -> Vec<String> {
    let protocol = include_str!("../../../docs/protocol.md");
    let line = protocol.lines().find_map(|line| line.strip_prefix(place)).expect(place);
    rights_in(line)
}

fn least() -> Vec<String> {
    let protocol = include_str!("../../../docs/protocol.md");
    rights_in(protocol.split("ACL SETUSER locks ").nth(1).unwrap().split("```").next().unwrap())
}

fn rights_in(text: &str) -> Vec<String> {
    text.split_whitespace().filter(|word| word.starts_with(['+', '~', '&'])).map(ToOwned::to_owned).collect()
}

fn without(rights: &[String], missing: &str) -> Vec<String> {
    rights.iter().filter(|right| *right != missing).cloned().collect()
}

/// The name of the user without `missing`; one place has all these users.
fn user(missing: &str) -> String {
    format!("lacks-{}", missing.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"))
}

fn allow(server: &Server, user: &str, rights: &[String]) {
    server.tell(&format!("ACL SETUSER {user} on >canary-7f3a -@all {}", rights.join(" ")));
}

fn allow_on(servers: &[&Server], user: &str, rights: &[String]) {
    for server in servers {
        allow(server, user, rights);
    }
}

fn as_user(url: &str, user: &str) -> String {
    url.replace("://", &format!("://{user}:canary-7f3a@"))
}

/// Uses everything that locks do, on the lock `key`.
async fn use_it_all(url: &str, key: &str) -> Result<(), LockError> {
    let (north, south) = (LockManager::connect(url).await?, LockManager::connect(url).await?);
    north.lock("p", key).acquire().await?.release().await?;
    let begin = std::time::Instant::now();
    let guard = north.lock("p", key).fenced(true).expire(Duration::from_secs(20)).renew(false).acquire().await?;
    guard.extend(Duration::from_secs(25)).await?;
    // A request that gives up. Its timeout is long enough to find out which right is missing, also at a slow place.
    match south.lock("p", key).timeout(3 * TIMEOUT).acquire().await {
        Err(error) if error.is_timeout() => {}
        Err(error) => return Err(error),
        Ok(other) => panic!("{key}: it was granted a lock that is held {guard:?} {other:?} {:?}", begin.elapsed()),
    }
    let name = key.to_owned();
    let waiter = tokio::spawn(async move {
        south.lock("p", &name).fenced(true).timeout(LONG).acquire().await?.release().await?;
        south.shutdown().await;
        Ok(())
    });
    sleep(TIMEOUT).await;
    guard.release().await?;
    waiter.await.unwrap()?;
    let renewed = north.lock("p", key).expire(3 * TIMEOUT).renew(true).acquire().await?;
    sleep(4 * TIMEOUT).await;
    renewed.release().await?;
    north.shutdown().await;
    Ok(())
}

/// Checks that the leftovers of the lock `key` block others for at most the time that an abandoned lock may, and then are gone.
///
/// Without `+zrem` a waiter can't be withdrawn from the queue, and stays until the next holder gets the lock.
async fn wait_until_nothing_is_left(others: &LockManager, servers: &[&Server], key: &str) {
    let next = others.lock("p", key).timeout(BRIEFLY + 2 * NOISE).acquire().await;
    next.unwrap_or_else(|error| panic!("something blocks others at {key}: {error}")).release().await.unwrap();
    let lock = format!("p:{key}");
    let queue = format!("{{p:{key}}}:queue");
    let left = || servers.iter().any(|server| server.keys().keys().any(|name| *name == lock || *name == queue));
    eventually(&format!("nothing is left at {key}"), BRIEFLY + 2 * NOISE, || !left()).await;
}

/// Checks that a user without the right `missing` gets an error that names it, or an event if a hold was lost because of it, and leaves
/// nothing behind.
async fn assert_reported(url: &str, others: &LockManager, servers: &[&Server], missing: &str, events: &Events) {
    let name = user(missing);
    let outcome = use_it_all(&as_user(url, &name), &name).await;
    wait_until_nothing_is_left(others, servers, &name).await;
    let is_logged = || !events.with(&["WARN", missing]).is_empty();
    let error = outcome.expect_err(missing);
    let text = error.to_string();
    if error.is_lost() {
        assert!(is_logged(), "{missing}: {error}");
    } else {
        let quoted = format!("'{}'", missing.trim_start_matches('+'));
        assert!(text.contains(missing) || text.contains(&quoted), "{missing}: {text}");
    }
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

/// Checks that `rights` are enough, and that without each right of `told` there is an error. Runs several at a time, since they mostly
/// wait.
async fn are_the_least(url: &str, servers: &[&Server], rights: &[String], told: &[String]) {
    let events = Events::of_this_process();
    let others = LockManager::connect(url).await.unwrap();
    for missing in told {
        allow_on(servers, &user(missing), &without(rights, missing));
    }
    // First this one, while the server has no scripts in its cache.
    assert_reported(url, &others, servers, "+eval", &events).await;
    allow_on(servers, "least", rights);
    let outcome = use_it_all(&as_user(url, "least"), "all").await;
    outcome.unwrap_or_else(|error| panic!("{error:?}: {:#?}", events.with(&["WARN"])));
    wait_until_nothing_is_left(&others, servers, "all").await;
    let the_rest = told.iter().filter(|right| *right != "+eval");
    iter(the_rest).for_each_concurrent(8, |missing| assert_reported(url, &others, servers, missing, &events)).await;
}

/// The rights whose absence is reported. `+publish` is not: waiters just ask again.
fn told(rights: &[String]) -> Vec<String> {
    rights.iter().filter(|right| right.starts_with('+') && *right != "+publish").cloned().collect()
}

#[tokio::test]
async fn the_least_rights_in_a_cluster_are_all_missed() {
    let cluster = Cluster::start();
    let servers: Vec<_> = cluster.nodes().collect();
    let rights = [least(), documented("on each node of a cluster:")].concat();
    // Without `+cluster|info` only slot maps get stale, and `+asking` is only needed for slots that move.
    let told: Vec<_> =
        told(&rights).into_iter().filter(|right| right != "+cluster|info" && right != "+asking").collect();
    are_the_least(&cluster.url(), &servers, &rights, &told).await;
    let name = user("+cluster|info");
    allow_on(&servers, &name, &without(&rights, "+cluster|info"));
    use_it_all(&as_user(&cluster.url(), &name), &name).await.unwrap();
}

#[tokio::test]
async fn a_slot_on_its_way_names_the_right_to_follow_it() {
    let cluster = Cluster::start();
    let rights = [least(), documented("on each node of a cluster:")].concat();
    for node in cluster.nodes() {
        allow(node, "least", &rights);
        allow(node, "poor", &without(&rights, "+asking"));
    }
    let slot = cluster.slot("p:k");
    let to = (cluster.owner_of("p:k") + 1) % 3;
    let migration = cluster.start_migration(slot, to);
    let poor = LockManager::connect(&as_user(&cluster.url(), "poor")).await.unwrap();
    let error = poor.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(error.to_string().contains("asking"), "{error}");
    let least = LockManager::connect(&as_user(&cluster.url(), "least")).await.unwrap();
    let guard = least.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    migration.move_keys();
    migration.finish();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_least_rights_on_a_quorum_are_all_missed() {
    let all = Servers::start(3);
    let servers: Vec<_> = all.servers().collect();
    // Instead of all keys, only those of the locks, and the marker.
    let keys = ["~p:*", "~{p:*"].map(ToOwned::to_owned).to_vec();
    let rights = [without(&least(), "~*"), keys, documented("on each server of a quorum:")].concat();
    let told = [told(&rights), vec!["~cache_lock:quorum".to_owned()]].concat();
    // A quorum has no queue.
    let of_queues = ["+zadd", "+zpopmin", "+zrange", "+zrem", "+zscore"];
    let told: Vec<_> = told.into_iter().filter(|right| !of_queues.contains(&right.as_str())).collect();
    are_the_least(&all.url(), &servers, &rights, &told).await;
}

#[tokio::test]
async fn the_least_rights_under_sentinels_are_all_missed() {
    let sentinels = Sentinels::start(1);
    let master = sentinels.agreed();
    let servers = [sentinels.server(master)];
    // The sentinels don't require a user here.
    are_the_least(&sentinels.url(), &servers, &least(), &told(&least())).await;
}

#[tokio::test]
async fn the_least_rights_on_sentinels_are_all_missed() {
    let rights = documented("on each sentinel, by itself:");
    let sentinels = Sentinels::start(0);
    let (url, server) = (sentinels.url(), sentinels.server(0));
    let mut users = Vec::new();
    for missing in rights.iter().map(String::as_str).chain(["nothing"]) {
        allow(server, &user(missing), &least());
        users.push((user(missing), format!("on >canary-7f3a -@all {}", without(&rights, missing).join(" "))));
    }
    for number in 0..3 {
        sentinels.sentinel(number).admit_only(&users);
    }
    for missing in &rights {
        let error = LockManager::connect(&as_user(&url, &user(missing))).await.expect_err(missing);
        assert!(error.to_string().contains(missing), "{missing}: {error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
    use_it_all(&as_user(&url, &user("nothing")), "k").await.unwrap();
    let others = LockManager::connect(&as_user(&url, &user("nothing"))).await.unwrap();
    wait_until_nothing_is_left(&others, &[server], "k").await;
}
