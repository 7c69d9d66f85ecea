//! Dead waiters of a shared lock (rule S4): what they cost others, at any place in the queue and in any number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::super::servers::model_server;
use crate::mutants::Seeded;
use crate::simulation::network::Network;
use crate::simulation::process::connect;
use crate::simulation::seeded::Bug;
use crate::simulation::time::Simulated;
use crate::{LockManager, LockRequest};

/// What promise 4 allows for each dead waiter.
const EACH: Duration = Duration::from_secs(3);
/// This many waiters repeat their asks every second (rule 5).
const NEAR: u32 = 16;
const PATIENT: Duration = Duration::from_mins(5);
/// The interval of a waiter that asks every second, and a message or two.
const A_LOOK: Duration = Duration::from_millis(1050);

/// How processes die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Their connections are closed.
    Crashed,
    /// They are stopped, or cut off without notice. The server counts them as listeners for ever.
    CutOff,
}

struct Place {
    _time: Simulated,
    network: Arc<Network>,
}

impl Place {
    fn new(bug: Option<Bug>) -> Self {
        let time = Simulated::begin();
        Self { _time: time, network: Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)) }
    }

    /// Puts dead waiters at the front of the queue that can't be granted next to the one permit in use.
    fn bury(&self, count: u32, end: End) {
        for number in 0..count {
            let process = format!("{number:032x}");
            // Writers, and permits.
            let kind = if number % 2 == 0 { "" } else { "s1" };
            let entry = format!("2500{kind}|{process}.1@dead");
            self.network.execute(&["ZADD", "{k:0}:queue", &(number + 1).to_string(), &entry]);
            if end == End::CutOff {
                self.network.server(|server, now| {
                    let client = server.connect();
                    let words = ["SUBSCRIBE", &format!("cache_lock:{process}")].map(|word| word.as_bytes().to_vec());
                    server.execute(client, now, &words);
                });
            }
        }
    }
}

fn permits(locks: &LockManager, permits: u32) -> LockRequest {
    locks.lock("k", &0).permits(permits).timeout(PATIENT)
}

/// How long a request that fits waits behind this many dead waiters.
async fn waits_behind(count: u32, end: End, bug: Option<Bug>) -> Duration {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let place = Place::new(bug);
    let (holder, next) = (connect(&place.network, "p"), connect(&place.network, "q"));
    let held = permits(&holder, 1).acquire().await.unwrap();
    place.bury(count, end);
    let start = Instant::now();
    let outcome = permits(&next, 2).acquire().await;
    assert!(bug.is_some() || outcome.is_ok(), "{outcome:?}");
    drop((outcome, held));
    start.elapsed()
}

/// How long a request that fits waits when all in front of it die. By then it is pausing: those in front have asked.
async fn waits_when_all_in_front_die(end: End, bug: Option<Bug>) -> Duration {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let place = Place::new(bug);
    let (holder, next) = (connect(&place.network, "p"), connect(&place.network, "q"));
    let _held = permits(&holder, 1).acquire().await.unwrap();
    let names: Vec<_> = (0..NEAR).map(|number| format!("dead{number}")).collect();
    let wait = |locks: &LockManager, of| tokio::spawn(permits(locks, of).acquire());
    let mut in_front = Vec::new();
    for name in &names {
        let manager = connect(&place.network, name);
        in_front.push((wait(&manager, 1), manager));
        sleep(Duration::from_millis(5)).await;
    }
    let waiting = wait(&next, 2);
    // The last one has just been told that it may pause.
    sleep(Duration::from_secs(3)).await;
    let commands = next.stats().commands;
    sleep(Duration::from_secs(7)).await;
    assert!(bug.is_some() || next.stats().commands <= commands + 4, "it does not pause behind waiters that live");
    for name in &names {
        place.network.part(name, PATIENT);
        if end == End::Crashed {
            place.network.cut(Some(name));
        }
    }
    let start = Instant::now();
    drop(waiting.await.unwrap().unwrap());
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn dead_waiters_of_a_shared_lock_that_nobody_listens_for_are_gone_in_one_look() {
    for count in [1, NEAR - 1, NEAR, NEAR + 1, 40, 200] {
        let waited = waits_behind(count, End::Crashed, None).await;
        assert!(waited < A_LOOK, "{count}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_waiters_of_a_shared_lock_that_are_counted_as_listeners_cost_three_seconds_each() {
    for count in [1, NEAR - 1, NEAR, NEAR + 1, 40] {
        let waited = waits_behind(count, End::CutOff, None).await;
        assert!(waited < EACH * count, "{count}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_shared_lock_that_pauses_when_all_in_front_die_waits_for_three_seconds_for_each() {
    for end in [End::Crashed, End::CutOff] {
        let waited = waits_when_all_in_front_die(end, None).await;
        assert!(waited < EACH * NEAR, "{end:?}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_part_of_the_rule_about_dead_waiters_is_needed() {
    let unheard = Bug::Scripts(&[("local lives = tell_one_near(lock, entry)", "local lives = true")]);
    assert!(waits_behind(40, End::Crashed, Some(unheard)).await > A_LOOK);
    let pauses = Bug::Scripts(&[("and not shares.head_asks(lock) then", "and false then")]);
    assert!(waits_behind(40, End::CutOff, Some(pauses)).await > EACH * 40);
    let forgets = Bug::Scripts(&[("local HEAD_TTL = 15000", "local HEAD_TTL = 1500")]);
    assert!(waits_behind(2, End::CutOff, Some(forgets)).await > EACH * 2);
    let long = Bug::Scripts(&[("local NEW_HEAD_LIFE = 1750000", "local NEW_HEAD_LIFE = 2750000")]);
    assert!(waits_behind(40, End::CutOff, Some(long)).await > EACH * 40);
}
