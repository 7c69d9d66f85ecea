//! A release writes back reserved fencing tokens that were not used (rule 8).

use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use super::super::network::Network;
use super::super::process::connect;
use super::super::seeded::Bug;
use super::super::servers::model_server;
use super::super::time::Simulated;

/// More than the server's clock shows, as if that had been set back. So the tokens follow the last one, and not the clock.
const LAST: &str = "5000000000000000";

const ANYBODY_WRITES: Bug =
    Bug::Scripts(&[("if owned and reserved ~= '0' and read(fence, '') == reserved then", "if reserved ~= '0' then")]);

/// The reply to a release that wrote a token back is lost. Before it is repeated, another process draws just that token.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_repeated_writes_back_no_token_that_others_have_drawn() {
    for (bug, is_greater) in [(None, true), (Some(ANYBODY_WRITES), false)] {
        let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
        network.move_away(Duration::from_millis(2));
        network.execute(&["SET", "{k:0}:fence", LAST]);
        let [first, second, third] = ["p", "q", "r"].map(|name| connect(&network, name));
        let fenced = |locks: &crate::LockManager| locks.lock("k", &0).fenced(true).acquire();
        // Two tasks of the first process wait, so it reserves two tokens. The second task gives up.
        let before = fenced(&third).await.unwrap();
        let (one, two) = (fenced(&first), timeout(Duration::from_millis(40), fenced(&first)));
        let before = async {
            sleep(Duration::from_millis(20)).await;
            before.release().await.unwrap();
        };
        let ((one, ()), two) = tokio::join!(async { tokio::join!(one, before) }, two);
        assert!(two.is_err(), "the first task has the lock");
        network.deafen("p");
        let released = tokio::spawn(one.unwrap().release());
        let drawn = fenced(&second).await.unwrap();
        let token = drawn.fencing_token().unwrap();
        network.cut_unused();
        let start = Instant::now();
        released.await.unwrap().ok();
        sleep(Duration::from_secs(2)).await;
        drawn.release().await.unwrap();
        let next = fenced(&third).await.unwrap().fencing_token().unwrap();
        assert_eq!(next > token, is_greater, "{next:?} after {token:?}, {bug:?}, {:?}", start.elapsed());
    }
}
