//! What a manager of a cluster makes of masters that are far away, lost, or masters no more.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use server_model::{ModelServer, slot_of};
use tokio::time::sleep;

use super::{COMMAND, ask};
use crate::LockManager;
use crate::clock::Deadline;
use crate::mutants::{Mutant, Seeded};
use crate::settings::Settings;
use crate::simulation::network::Network;
use crate::simulation::process::connect_to_cluster;
use crate::simulation::time::Simulated;
use crate::store::Store as _;

/// A manager of a cluster of two masters, so far away, which has used both.
async fn with_two_masters(far: [Duration; 2]) -> (Simulated, Arc<Network>, LockManager) {
    let (time, mut server) = (Simulated::begin(), ModelServer::new());
    server.set_nodes(2);
    for key in [0, 1] {
        server.move_slot(slot_of(format!("k:{key}").as_bytes()), key);
    }
    let network = Network::new(server, 1.0, Rng::with_seed(0));
    let locks = connect_to_cluster(&network, "p", Settings::default().max_clock_drift_ppm);
    for (key, round_trip) in (0..).zip(far) {
        network.move_away(round_trip);
        let request = locks.lock("k", &key).timeout(COMMAND * 20);
        request.acquire().await.unwrap().release().await.unwrap();
    }
    (time, network, locks)
}

/// How far away a master of a cluster is says nothing of the others.
#[tokio::test(start_paused = true)]
async fn a_step_has_the_time_for_the_master_of_its_own_lock() {
    let far = Duration::from_millis(400);
    for (bug, is_own) in [(None, true), (Some(Mutant::FarthestForAll), false)] {
        let (_time, _network, locks) = with_two_masters([Duration::ZERO, far]).await;
        let _seeded = Seeded::begin(bug);
        let store = locks.core().store();
        assert!(store.connection("k:1").round_trip >= far);
        assert_eq!(store.connection("k:0").round_trip < far, is_own, "{bug:?}");
    }
}

/// Both are near. Then one of them serves all slots.
async fn after_a_move() -> (Simulated, Arc<Network>, LockManager) {
    let (time, network, locks) = with_two_masters([Duration::ZERO; 2]).await;
    network.server(|server, _| {
        for slot in 0..16_384 {
            server.move_slot(slot, 0);
        }
    });
    (time, network, locks)
}

/// After the first of these calls the master is doubtful, and another one is looked for.
#[tokio::test(start_paused = true)]
async fn an_error_names_the_master_also_when_another_is_looked_for_in_too_little_time() {
    let (_time, network, locks) = with_two_masters([Duration::ZERO; 2]).await;
    network.part("p", COMMAND * 100);
    for timeout in [COMMAND * 4, COMMAND / 10, COMMAND / 10, Duration::ZERO] {
        let error = locks.lock("k", &1).timeout(timeout).acquire().await.unwrap_err();
        assert!(error.to_string().contains("the node "), "{timeout:?}: {error}");
    }
}

/// Its connection is still being made when it was looked for in vain.
#[tokio::test(start_paused = true)]
async fn a_master_that_is_far_away_has_time_to_answer_after_a_look_for_it() {
    let far = COMMAND * 3 / 5;
    for (bug, is_answered) in [(None, true), (Some(Mutant::FarMasterCutShort), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network, locks) = with_two_masters([far; 2]).await;
        let store = locks.core().store();
        network.cut(Some("p"));
        sleep(COMMAND).await;
        store.begin_to_connect();
        sleep(far).await;
        let ask = ask("k:1", locks.core().next_token(false, None), COMMAND * 4);
        let claimed = store.claim(&ask, Deadline::after(COMMAND * 4)).await;
        assert_eq!(claimed.is_ok(), is_answered, "{bug:?}: {claimed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_no_master_any_more_need_not_be_connected() {
    for (bug, is_ready) in [(None, true), (Some(Mutant::FormerMasterCounts), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network, locks) = after_a_move().await;
        // One that reads where the slots are now.
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        network.cut(Some("p"));
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(locks.core().store().is_connected(), is_ready, "{bug:?}");
    }
}

/// Nobody uses a lock, as in a service that is not ready.
#[tokio::test(start_paused = true)]
async fn who_asks_for_the_connections_finds_the_new_master_of_one_that_is_lost() {
    for (bug, is_found) in [(None, true), (Some(Mutant::LostMasterNotLookedFor), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network, locks) = after_a_move().await;
        let store = locks.core().store();
        let before = store.server_name("k:1");
        network.cut(Some("p"));
        // The nodes were asked a moment ago.
        sleep(COMMAND / 2).await;
        store.begin_to_connect();
        sleep(COMMAND).await;
        assert_eq!(store.server_name("k:1") != before, is_found, "{bug:?}: {before}");
    }
}
