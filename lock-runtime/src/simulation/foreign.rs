//! Another client that uses our names: it puts values of another type at the helper keys of locks, and at the key of a lock whose
//! manager is shutting down.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use history::claims::HARNESS;
use history::event::What;
use tokio::time::{Instant, sleep};

use super::network::Network;
use super::process::connect;
use super::time;
use super::world::Plan;

/// The fault's name in the history. It does not excuse a lock that stays.
const KIND: &str = "ForeignValue";
/// Locks of managers that shut down; they are not in the history.
pub(super) const GONE: &str = "gone:";
/// By then a hold is confirmed.
const CONFIRMED: Duration = Duration::from_millis(100);

/// Puts values at helper keys until `end`, each for longer than a release may take.
pub(super) async fn befall(network: &Arc<Network>, plan: &Plan, end: Instant, random: &mut Rng) {
    leave(network).await;
    while Instant::now() < end {
        let span = random.u64(1500..4000);
        let lock = format!("k:{}", random.u64(..plan.keys));
        let from = time::now().unwrap_or_default();
        if random.bool() {
            network.execute(&["SET", &format!("{{{lock}}}:queue"), "theirs", "PX", &span.to_string()]);
        } else {
            put_list(network, &format!("{{{lock}}}:fence"), span);
        }
        // The server may keep the value for a millisecond longer than `span`.
        sleep(Duration::from_millis(span + 2)).await;
        network.note(HARNESS, 0, What::Fault { kind: KIND.to_owned(), target: "server".to_owned(), from });
        sleep(Duration::from_millis(random.u64(0..500))).await;
    }
}

/// A manager shuts down, and another client has put a list at the key of its lock.
async fn leave(network: &Arc<Network>) {
    let locks = connect(network, "leaver");
    let guard = locks.lock("gone", &0).expire(Duration::from_secs(4)).acquire().await.unwrap();
    sleep(CONFIRMED).await;
    put_list(network, &format!("{GONE}0"), 4000);
    drop((guard, locks));
}

fn put_list(network: &Network, key: &str, span: u64) {
    network.execute(&["DEL", key]);
    network.execute(&["RPUSH", key, "theirs"]);
    network.execute(&["PEXPIRE", key, &span.to_string()]);
}
