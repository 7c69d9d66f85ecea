//! Servers that restart without their data, whatever their clocks do.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::world::{LONGEST, World, by};
use super::{is_granted, world};
use crate::mutants::{Mutant, Seeded};
use crate::store::Renewed;

const SECOND: Duration = Duration::from_secs(1);

/// Two of three servers forget a held lock. They are as old as the other manager believes.
#[tokio::test(start_paused = true)]
async fn servers_whose_clocks_are_set_forward_after_their_restart_do_not_vote_sooner() {
    let steps = [Duration::ZERO, 31 * SECOND, 3600 * SECOND, Duration::from_hours(23)];
    for (step, bug) in steps.into_iter().map(|step| (step, None)).chain([(SECOND, Some(Mutant::RestartedIsMarked))]) {
        let _seeded = Seeded::begin(bug);
        let world = World::of(3);
        let other = world.other();
        assert!(is_granted(&world.claim("t").await));
        let Ok(Renewed::Until(until)) = world.renew("t").await else { panic!("it is renewed") };
        world.restart(1, step).await;
        world.restart(2, step).await;
        let restarted = Instant::now();
        let mut tries = 0;
        while !is_granted(&other.claim(&format!("{tries}")).await) {
            tries += 1;
            sleep(SECOND).await;
            let _ = other.quorum.connect(by()).await;
        }
        let is_alone = until.has_passed();
        assert_eq!(is_alone, bug.is_none(), "{step:?}: two hold the lock after {:?}, {bug:?}", restarted.elapsed());
        assert!(restarted.elapsed() <= LONGEST + 4 * SECOND, "{step:?}: {:?}", restarted.elapsed());
    }
}

/// Each manager lives for a second, and the next one starts without its knowledge.
#[tokio::test(start_paused = true)]
async fn a_server_votes_again_after_a_day_also_when_no_manager_sees_it_for_long() {
    let sighted = world::World::of(3);
    sighted.restart(1, Duration::ZERO).await;
    sighted.restart(2, Duration::ZERO).await;
    sleep(Duration::from_hours(24) + LONGEST).await;
    let manager = sighted.other();
    let _ = manager.quorum.connect(by()).await;
    assert!(!is_granted(&manager.claim("early").await));
    sleep(2 * SECOND).await;
    let _ = manager.quorum.connect(by()).await;
    assert!(is_granted(&manager.claim("late").await));
}
