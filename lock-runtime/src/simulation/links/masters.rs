//! How a cluster's manager treats masters that are distant, lost or no longer masters.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use server_model::{ModelServer, slot_of};
use tokio::time::sleep;

use super::{COMMAND, ask};
use crate::LockManager;
use crate::clock::{Deadline, Moment};
use crate::mutants::{Mutant, Seeded};
use crate::settings::Settings;
use crate::simulation::network::Network;
use crate::simulation::process::connect_to_cluster;
use crate::simulation::time::Simulated;
use crate::store::Store as _;

/// The manager of a cluster with two masters at these distances, both in use.
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

/// After the first of these calls the master is in doubt, and the store looks for another one.
#[tokio::test(start_paused = true)]
async fn an_error_names_the_master_also_when_another_is_looked_for_in_too_little_time() {
    let (_time, network, locks) = with_two_masters([Duration::ZERO; 2]).await;
    network.part("p", COMMAND * 100);
    for timeout in [COMMAND * 4, COMMAND / 10, COMMAND / 10, Duration::ZERO] {
        let error = locks.lock("k", &1).timeout(timeout).acquire().await.unwrap_err();
        assert!(error.to_string().contains("the node "), "{timeout:?}: {error}");
    }
}

/// Its connection is still being made after a failed search for it.
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
        let ask = ask("k:1", locks.core().next_token(Moment::now(), false, None, None), COMMAND * 4);
        let claimed = store.claim(&ask, Deadline::after(COMMAND * 4)).await;
        assert_eq!(claimed.is_ok(), is_answered, "{bug:?}: {claimed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_no_master_any_more_need_not_be_connected() {
    for (bug, is_ready) in [(None, true), (Some(Mutant::FormerMasterCounts), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network, locks) = after_a_move().await;
        // This use learns where the slots are now.
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        network.cut(Some("p"));
        locks.lock("k", &1).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(locks.core().store().is_connected(), is_ready, "{bug:?}");
    }
}

/// No lock is in use, as in a service that is not ready.
#[tokio::test(start_paused = true)]
async fn a_request_for_the_connections_finds_the_new_master_of_a_lost_one() {
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
