//! The server's keys after every verb: each expires, and none with a large value is read.

use std::time::Duration;

use tokio::time::sleep;

use super::super::seeded::Bug;
use super::super::servers::model_server;
use super::{SECOND, world_on};
use crate::simulation::network::Network;
use crate::simulation::process::connect;
use crate::{LockManager, OnBusy};

/// Longer than each expiry that the verbs below set.
const STALL: Duration = Duration::from_secs(5);

/// The scripts as they would be if they trusted the expiry that they set earlier.
const TRUSTS_ITS_END: [Bug; 4] = [
    Bug::Scripts(&[("SET', lock, ticket, 'PX', kept)", "SET', lock, ticket, 'KEEPTTL')")]),
    Bug::Scripts(&[("SET', lock, token, 'PX', claim)\n  else", "SET', lock, token, 'KEEPTTL')\n  else")]),
    Bug::Scripts(&[("marked, 'XX', 'KEEPTTL')", "marked, 'KEEPTTL')")]),
    Bug::Scripts(&[("FORCED, 'PX', claim)", "FORCED, 'KEEPTTL')")]),
];

/// Each verb once. The server may answer none of them in time.
async fn do_all(one: &LockManager, other: &LockManager) {
    let lock = |locks: &LockManager, key: u32| locks.lock("k", &key).expire(SECOND * 4).timeout(SECOND);
    if let Ok(guard) = lock(one, 0).fenced(true).acquire().await
        && let Ok(ticket) = guard.into_ticket(SECOND * 3).await
        && let Ok(adopted) = other.adopt(ticket).await
    {
        adopted.release().await.ok();
    }
    if let Ok(guard) = lock(one, 1).at_least(SECOND).acquire().await {
        guard.release().await.ok();
    }
    for key in [2, 3] {
        let Ok(guard) = lock(one, key).acquire().await else { continue };
        // By then it is confirmed for longer than a claim.
        sleep(SECOND / 10).await;
        if key == 2 {
            other.force_release("k", &key).await.ok();
        } else {
            lock(other, key).on_busy(OnBusy::Replace).acquire().await.ok();
        }
        drop(guard);
    }
    let (reader, permit) = (lock(one, 4).read().acquire().await, lock(one, 5).permits(2).acquire().await);
    let (writer, next) = tokio::join!(lock(other, 4).acquire(), lock(other, 5).permits(2).at_least(SECOND).acquire());
    if let Ok(guard) = permit
        && let Ok(ticket) = guard.into_ticket(SECOND * 3).await
    {
        other.adopt(ticket).await.ok();
    }
    other.force_release("k", &4).await.ok();
    drop((reader, writer, next));
    sleep(SECOND).await;
}

/// Whether a violation is seen when the server stalls for long at the `nth` reading of its clock.
async fn seen_at(bug: Option<Bug>, nth: u32) -> bool {
    let (_time, network) = world_on(model_server(bug, None));
    let (one, other) = (connect(&network, "p"), connect(&network, "q"));
    let mut looks = 0;
    network.server(|server, _| {
        server.set_pace(move || {
            looks += 1;
            if looks == nth { u64::try_from(STALL.as_micros()).unwrap() } else { 0 }
        });
    });
    do_all(&one, &other).await;
    network.take_seen().iter().any(|seen| seen.check == "C9 what the server keeps has an end")
}

/// Redis 7.0 deletes a key inside `PEXPIRE`, if it stalls there until the key's expiry.
#[tokio::test(start_paused = true)]
async fn wherever_a_server_stands_still_each_key_has_an_end() {
    const LOOKS: u32 = 150;
    for nth in 1..=LOOKS {
        assert!(!seen_at(None, nth).await, "at look {nth}");
    }
    for bug in TRUSTS_ITS_END {
        let mut is_seen = false;
        for nth in 1..=LOOKS {
            is_seen = is_seen || seen_at(Some(bug), nth).await;
        }
        assert!(is_seen, "{bug:?}");
    }
}

fn put_large(network: &Network, key: u32) {
    network.execute(&["SET", &format!("k:{key}"), &"x".repeat(1 << 20), "PX", "60000"]);
}

/// Whether another client's value under a lock's name is read, before the lock is held and after.
async fn is_large_value_read(bug: Option<Bug>) -> bool {
    let (_time, network) = world_on(model_server(bug, None));
    let (one, other) = (connect(&network, "p"), connect(&network, "q"));
    (0..6).for_each(|key| put_large(&network, key));
    do_all(&one, &other).await;
    let try_it = || one.lock("k", &0).try_acquire();
    assert!(try_it().await.unwrap().is_none());
    one.lock_all("k", [0, 9]).timeout(SECOND).acquire().await.unwrap_err();
    assert!(one.inspect("k", &0).await.unwrap().is_some());
    for (key, share) in [(10, 0), (11, 1), (12, 2)] {
        for how in ["release", "drop", "extend", "give", "rest", "renew"] {
            let request = one.lock("k", &key).expire(SECOND).fenced(true);
            let request = if how == "rest" { request.at_least(SECOND * 3) } else { request };
            let guard = match share {
                0 => request.acquire().await.unwrap(),
                1 => request.read().acquire().await.unwrap(),
                _ => request.permits(2).acquire().await.unwrap(),
            };
            put_large(&network, key);
            match how {
                "release" | "rest" => drop(guard.release().await),
                "extend" => drop(guard.extend(SECOND).await),
                "give" => drop(guard.into_ticket(SECOND).await),
                "renew" => guard.lost().await,
                _ => drop(guard),
            }
            sleep(SECOND).await;
            network.execute(&["DEL", &format!("k:{key}")]);
        }
    }
    network.take_seen().iter().any(|seen| seen.check == "C12 no large value is read")
}

#[tokio::test(start_paused = true)]
async fn no_verb_reads_a_large_value_under_the_name_of_a_lock() {
    assert!(!is_large_value_read(None).await);
    for reads in ["KEYS[1], '0', '1023'", "KEYS[i], '0', '1023'", "pcall('GETRANGE', key, '0', last or '1023')"] {
        let whole: &'static str = Box::leak(reads.replace("1023", "-1").into_boxed_str());
        let patches: &'static [(&str, &str)] = Box::leak(Box::new([(reads, whole)]));
        assert!(is_large_value_read(Some(Bug::Scripts(patches))).await, "{reads}");
    }
}
