//! How long a pushed grant is valid.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::advance;

use super::{Anchor, NodeId, Pushed};
use crate::clock::{Drift, Moment};
use crate::mutants::{Mutant, Seeded};
use crate::token::Process;

proptest! {
    /// The server's clock may run 1 % fast from the anchor on.
    #[test]
    fn a_pushed_grant_is_never_dated_later_than_the_server_keeps_it(
        rate in 0.99..=1.01_f64,
        passed in 0..10_000_000_u64,
        claim in 1..2500_u64,
        underway in 0..2500_u64,
    ) {
        let scene = async move {
            let anchor = Anchor { sent: Moment::now(), store_micros: 1_700_000_000_000_000, drift: Drift::DEFAULT, node: None };
            let (claim, underway) = (Duration::from_millis(claim), Duration::from_millis(underway));
            let really = |server: Duration| server.div_f64(rate);
            advance(really(Duration::from_micros(passed)) + underway).await;
            let pushed = Pushed {
                token: Process::new("p").next_token(Moment::now(), false, None, None),
                claim,
                store_micros: anchor.store_micros + passed,
                contended: false,
                node: None, unconfirmed: false,
                };
            // The time between the two readings of the clock is on the safe side: it only shortens the lease.
            (pushed.until(anchor, Moment::now()).remaining(), really(claim).saturating_sub(underway))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (trusted, kept) = runtime.block_on(scene);
        prop_assert!(trusted <= kept, "{trusted:?} > {kept:?}");
    }
}

/// Rule 16. Another node's clock may show any time.
#[tokio::test(start_paused = true)]
async fn a_grant_of_another_node_is_confirmed_before_use() {
    for (bug, is_used) in [(None, false), (Some(Mutant::RelayedGrantTrusted), true)] {
        let _seeded = Seeded::begin(bug);
        let node = |digit: &str| NodeId::read(&digit.repeat(40));
        let (now, claim) = (Moment::now(), Duration::from_secs(2));
        let anchor = Anchor { sent: now, store_micros: 1_700_000_000_000_000, drift: Drift::DEFAULT, node: node("a") };
        let pushed = Pushed {
            token: Process::new("p").next_token(Moment::now(), false, None, None),
            claim,
            store_micros: anchor.store_micros,
            contended: false,
            node: node("b"),
            unconfirmed: false,
        };
        assert_eq!(!pushed.until(anchor, now).remaining().is_zero(), is_used, "{bug:?}");
        let of_its_own = Pushed { node: node("a"), ..pushed };
        assert!(!of_its_own.until(anchor, now).remaining().is_zero(), "{bug:?}");
    }
}
