//! Alarms: the server tells a process when another client changes a lock that the process holds. Each test also shows what happens with a
//! bug.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::timing::ALARM_AFTER;

/// By then the hold is confirmed, and its alarm is armed.
const ARMED: Duration = ALARM_AFTER.saturating_add(Duration::from_millis(100));
const AT_ONCE: Duration = Duration::from_millis(50);

fn world() -> (Simulated, Arc<Network>) {
    (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)))
}

/// Runs a separate world.
fn alone<T>(world: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(world)
}

/// How long a holder with the default lease takes to notice that an operator changed its lock.
async fn noticed_after(bug: Option<Mutant>, age: Duration, command: &[&str]) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    let guard = connect(&network, "p").lock("k", &0).acquire().await.unwrap();
    sleep(age).await;
    network.execute(command);
    let start = Instant::now();
    guard.lost().await;
    start.elapsed()
}

#[test]
fn a_lock_that_an_operator_takes_away_is_noticed_at_once() {
    for command in [&["DEL", "k:0"][..], &["SET", "k:0", "theirs"], &["PEXPIRE", "k:0", "0"], &["FLUSHALL"]] {
        let took = alone(noticed_after(None, ARMED, command));
        assert!(took < AT_ONCE, "{command:?}: {took:?}");
        let took = alone(noticed_after(Some(Mutant::AlarmsUnheeded), ARMED, command));
        assert!(took > Duration::from_secs(9), "{command:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_deleted_before_its_alarm_is_armed_is_noticed_when_it_is_armed() {
    let took = noticed_after(None, Duration::from_millis(100), &["DEL", "k:0"]).await;
    assert!(took < ALARM_AFTER, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_has_new_alarms() {
    let (_time, network) = world();
    let guard = connect(&network, "p").lock("k", &0).acquire().await.unwrap();
    sleep(ARMED).await;
    network.cut(None);
    sleep(ARMED * 2).await;
    network.execute(&["DEL", "k:0"]);
    let start = Instant::now();
    guard.lost().await;
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

/// How many commands per second a hold costs while another client keeps changing its key, but leaves it to its owner.
async fn commands_under_fire(bug: Option<Mutant>) -> u64 {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = world();
    network.set_conditions(Conditions { delay: Duration::from_millis(1), ..Conditions::default() });
    let locks = connect(&network, "p");
    let guard = locks.lock("k", &0).acquire().await.unwrap();
    sleep(ARMED).await;
    let (before, seconds) = (locks.stats().commands, 5);
    for moment in 0..seconds * 200 {
        network.execute(&["PEXPIRE", "k:0", &(40_000 + moment).to_string()]);
        sleep(Duration::from_millis(5)).await;
    }
    assert!(guard.is_valid());
    (locks.stats().commands - before) / seconds
}

#[test]
fn a_key_that_somebody_changes_all_the_time_costs_two_commands_a_second() {
    let commands = alone(commands_under_fire(None));
    assert!((1..=2).contains(&commands), "{commands}");
    let commands = alone(commands_under_fire(Some(Mutant::VerificationArms)));
    assert!(commands > 50, "{commands}");
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_armed_lease_costs_its_next_holder_nothing() {
    let (_time, network) = world();
    let locks = connect(&network, "p");
    let guard = locks.lock("k", &0).acquire().await.unwrap();
    sleep(ARMED).await;
    guard.release().await.unwrap();
    let before = locks.stats().commands;
    let guard = locks.lock("k", &0).acquire().await.unwrap();
    sleep(ALARM_AFTER / 2).await;
    assert!(guard.is_valid());
    // The claim and its confirmation.
    assert_eq!(locks.stats().commands - before, 2);
}
