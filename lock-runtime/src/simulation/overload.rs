//! Processes with too much to do: each wake-up of a task is late, and they make progress anyway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::late::{Diary, Late, PolledLate};
use super::network::Network;
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};

const LATE: u64 = 200;
const SPAN: Duration = Duration::from_mins(1);

/// How often each task gets the lock in a minute.
fn grants(processes: u32, tasks: u32, bug: Option<Mutant>) -> Vec<u32> {
    let _seeded = Seeded::begin(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _time = Simulated::begin();
        let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
        let end = Instant::now() + SPAN;
        let mut running = Vec::new();
        for process in 0..processes {
            let locks = connect(&network, &format!("p{process}"));
            for task in 0..tasks {
                let locks = locks.clone();
                let work = async move {
                    let mut grants = 0;
                    while Instant::now() < end {
                        // A task that is late gives up in time, and asks again.
                        if let Ok(guard) = locks.lock("k", &0).timeout(SPAN).acquire().await {
                            grants += 1;
                            sleep(Duration::from_millis(1)).await;
                            let _ = guard.release().await;
                        }
                    }
                    grants
                };
                let diary = Diary { network: Arc::clone(&network), process: format!("p{process}"), task };
                running.push(tokio::spawn(PolledLate::new(work, Late::Exactly(LATE), Rng::with_seed(0), diary)));
            }
        }
        let mut all = Vec::new();
        for task in running {
            all.push(task.await.unwrap());
        }
        all
    })
}

#[test]
fn a_process_whose_tasks_are_all_polled_late_is_no_slower_when_unused_leases_are_released() {
    for tasks in [1, 2, 8, 64] {
        let before: u32 = grants(1, tasks, Some(Mutant::FreeLeaseKept)).iter().sum();
        let now = grants(1, tasks, None);
        println!(
            "{tasks} tasks: {before} before, {} now, each {:?}..{:?}",
            now.iter().sum::<u32>(),
            now.iter().min(),
            now.iter().max()
        );
        assert!(now.iter().sum::<u32>() >= before, "{tasks} tasks: {now:?}, before {before}");
        assert!(now.iter().all(|grants| *grants > 0), "{tasks} tasks: {now:?}");
    }
}

#[test]
fn two_processes_whose_tasks_are_all_polled_late_make_progress() {
    for tasks in [1, 8, 32] {
        let before: u32 = grants(2, tasks, Some(Mutant::FreeLeaseKept)).iter().sum();
        let now = grants(2, tasks, None);
        println!(
            "2 x {tasks} tasks: {before} before, {} now, each {:?}..{:?}",
            now.iter().sum::<u32>(),
            now.iter().min(),
            now.iter().max()
        );
        assert!(now.iter().all(|grants| *grants > 0), "{tasks} tasks: {now:?}");
        // The cost of leases that go to another process whose task is polled late as well.
        assert!(now.iter().sum::<u32>() * 100 >= before * 94, "{tasks} tasks: {now:?}, before {before}");
    }
}
