//! A crowd: more processes want one lock than may repeat their asks every second (rule 5).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::seeded::Bug;
use super::servers::model_server;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{LockGuard, LockManager};

/// This many of them repeat their asks every second.
const NEAR: usize = 16;
const WAITERS: usize = 24;
/// By then each waiter knows whether it may pause.
const SETTLED: Duration = Duration::from_secs(3);
const A_SECOND: Duration = Duration::from_millis(1050);

struct Crowd {
    _time: Simulated,
    network: Arc<Network>,
    managers: Vec<LockManager>,
    /// Each hold, when it begins.
    holds: mpsc::UnboundedReceiver<LockGuard>,
}

impl Crowd {
    /// The first process holds the lock, and the others queue for it in order.
    async fn gather(bug: Option<Bug>) -> Self {
        let time = Simulated::begin();
        let network = Network::new(model_server(bug, None), 1.0, Rng::with_seed(0));
        let (sender, holds) = mpsc::unbounded_channel();
        let managers: Vec<_> = (0..=WAITERS).map(|number| connect(&network, &format!("p{number}"))).collect();
        for manager in &managers {
            let (manager, sender) = (manager.clone(), sender.clone());
            tokio::spawn(async move {
                let guard = manager.lock("k", &0).timeout(Duration::from_mins(1)).acquire().await.unwrap();
                let _ = sender.send(guard);
            });
            sleep(Duration::from_millis(5)).await;
        }
        sleep(SETTLED).await;
        Self { _time: time, network, managers, holds }
    }

    fn commands(&self) -> Vec<u64> {
        self.managers.iter().map(|manager| manager.stats().commands).collect()
    }
}

/// How long the lock is free after it is granted to a waiter from far behind, and the message about that is lost.
async fn lost_wake_up(bug: Option<Bug>) -> Duration {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let mut crowd = Crowd::gather(bug).await;
    for _ in 0..NEAR + 3 {
        crowd.holds.recv().await.unwrap().release().await.unwrap();
    }
    let guard = crowd.holds.recv().await.unwrap();
    crowd.network.set_conditions(Conditions { push_lost: 1.0, ..Conditions::default() });
    guard.release().await.unwrap();
    let released = Instant::now();
    drop(crowd.holds.recv().await.unwrap());
    released.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_many_others_asks_seldom() {
    let crowd = Crowd::gather(None).await;
    let before = crowd.commands();
    sleep(Duration::from_secs(18)).await;
    let sent: Vec<_> = crowd.commands().iter().zip(before).map(|(now, before)| now - before).collect();
    let (near, far) = sent.split_at(1 + NEAR);
    assert!(near.iter().skip(1).all(|sent| *sent >= 18), "{sent:?}");
    assert!(far.iter().all(|sent| (1..=6).contains(sent)), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_a_second_also_for_a_waiter_from_far_behind() {
    let delay = lost_wake_up(None).await;
    assert!(delay < A_SECOND, "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_more_when_near_waiters_are_not_notified_or_pause_on() {
    for bug in [Bug::Scripts(&[("'near ' .. number(now())", "'nearly '")]), Bug::Code(Mutant::NearForgotten)] {
        let delay = lost_wake_up(Some(bug)).await;
        assert!(delay > 2 * A_SECOND, "{bug:?}: {delay:?}");
    }
}
