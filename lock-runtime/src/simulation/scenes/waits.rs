//! An acquire whose time is up is told what is true.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use tokio::time::sleep;

use super::world;
use crate::LockError;
use crate::mutants::{Mutant, Seeded};
use crate::simulation::process::connect;

/// A task waits for a sibling, which asks a server that is silent. The sibling's time is up a moment before, and the next task begins to
/// ask.
#[tokio::test(start_paused = true)]
async fn a_task_that_waited_for_siblings_is_told_of_a_silent_server() {
    for (bug, is_told) in [(None, true), (Some(Mutant::EarlierSilenceForgotten), false)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = world();
        network.move_away(Duration::from_millis(60));
        let locks = connect(&network, "p");
        locks.lock("k", &0).acquire().await.unwrap().release().await.unwrap();
        network.freeze(Duration::from_secs(9));
        let begun = |after: u64, timeout: u64| {
            let request = locks.lock("k", &0).timeout(Duration::from_millis(timeout));
            async move {
                sleep(Duration::from_millis(after)).await;
                request.acquire().await.map(drop)
            }
        };
        let (first, second, _) = tokio::join!(biased; begun(0, 100), begun(1, 100), begun(2, 1000));
        assert!(matches!(first, Err(LockError::Backend { .. })), "{first:?}");
        assert_eq!(matches!(second, Err(LockError::Backend { .. })), is_told, "{bug:?}: {second:?}");
    }
}
