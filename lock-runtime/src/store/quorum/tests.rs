//! Locks on a majority, over servers in memory that fail on command, in paused time.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use crate::clock::without_drift;
use crate::mutants::{Mutant, Seeded};
use crate::store::voter::Eligibility;
use crate::store::{Answer, Reach, Renewed, Retry, Seen, Store, StoreError};
use crate::timing::CLAIM;
use crate::token::Token;

mod away;
mod restarts;
mod world;

use super::of_majority;
use world::{COMMAND, KEY, Mode, PATIENCE, World, by};

fn is_granted(answer: &Result<Answer, StoreError>) -> bool {
    matches!(answer, Ok(Answer::Granted(_)))
}

fn is_busy(answer: &Result<Answer, StoreError>) -> bool {
    matches!(answer, Ok(Answer::Busy(_)))
}

#[test]
fn the_owner_is_the_one_of_a_majority_and_its_time_is_that_of_the_majority() {
    let seen = |owner: &str, seconds| {
        let frees_in = Some(Duration::from_secs(seconds));
        Seen { owner: Token::foreign(owner), frees_in, sharing: Vec::new(), waiting: Vec::new() }
    };
    let shown = of_majority(&[seen("a", 9), seen("b", 30), seen("a", 5)], 2).unwrap();
    assert_eq!((shown.owner.as_str(), shown.frees_in), ("a", Some(Duration::from_secs(5))));
    assert!(of_majority(&[seen("a", 9), seen("b", 9)], 2).is_none());
}

const AWAY: [Mode; 3] = [Mode::Refuses, Mode::Silent, Mode::Mute];

#[tokio::test(start_paused = true)]
async fn no_verb_waits_for_a_minority() {
    for mode in AWAY {
        for away in 0..3 {
            let world = World::of(3);
            world.set(away, mode);
            let start = Instant::now();
            assert!(is_granted(&world.claim("t").await));
            assert!(matches!(world.renew("t").await, Ok(Renewed::Until(_))));
            assert!(world.quorum.draw(&KEY.into(), &Token::foreign("t"), None, 1, by()).await.unwrap().is_some());
            assert!(world.release("t").await.unwrap());
            assert!(start.elapsed() < Duration::from_millis(10), "{mode:?} {away}: {:?}", start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_granted_and_the_error_names_who_does_not_answer() {
    for mode in AWAY {
        let world = World::of(3);
        world.set(1, mode);
        world.set(2, mode);
        for answer in [world.claim("t").await, world.wait("t").await] {
            let error = answer.unwrap_err();
            assert_eq!(error.retry, Retry::Later);
            let text = error.problem.to_string();
            assert!(text.contains("2 of 3") && text.contains("s1: ") && text.contains("s2: "), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_was_sent_to_no_server_is_certain_to_have_no_effect() {
    use Mode::{Mute, Refuses, Silent, Up};

    for (modes, reach) in [
        ([Refuses, Refuses, Refuses], Reach::Unsent),
        ([Up, Refuses, Refuses], Reach::Unanswered),
        ([Refuses, Refuses, Silent], Reach::Unanswered),
        ([Mute, Refuses, Refuses], Reach::Unanswered),
    ] {
        let world = World::of(3);
        (0..).zip(modes).for_each(|(number, mode)| world.set(number, mode));
        for answer in [world.claim("t").await, world.wait("t").await] {
            assert_eq!(answer.unwrap_err().reach, reach, "{modes:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_lasts_as_long_as_a_majority_keeps_it() {
    for bug in [None, Some(Mutant::LatestEndCounts)] {
        let _seeded = Seeded::begin(bug);
        let world = World::of(3);
        // The other grants are later, and last longer. A majority is two of three, so the second best counts.
        world.give(0, "t").await;
        sleep(Duration::from_secs(1)).await;
        world.give(1, "t").await;
        sleep(Duration::from_secs(1)).await;
        world.set(2, Mode::Silent);
        let Ok(Answer::Granted(grant)) = world.claim("t").await else { panic!("it is granted") };
        let kept = without_drift(CLAIM.saturating_sub(Duration::from_secs(2)));
        assert_eq!(grant.until.remaining() <= kept, bug.is_none(), "{bug:?}");
        world.set(2, Mode::Up);
        let Ok(Answer::Granted(grant)) = world.claim("t").await else { panic!("it is granted") };
        assert!(grant.until.remaining() <= without_drift(CLAIM));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_is_not_waited_for_to_be_refused() {
    let world = World::of(3);
    world.give(1, "x").await;
    world.set(2, Mode::Silent);
    for longest in [PATIENCE, Duration::ZERO] {
        let start = Instant::now();
        assert!(is_busy(&world.claim("t").await));
        assert!(start.elapsed() <= longest + Duration::from_millis(1), "{:?}", start.elapsed());
        // By then it has failed.
        sleep(COMMAND).await;
    }
}

/// A waiter refused by all servers has nothing to withdraw, and asks again under the same token.
#[tokio::test(start_paused = true)]
async fn a_refusal_says_whether_any_server_may_have_granted_the_lock() {
    for (owners, mode, stands) in [
        (["x", "x", "x"], Mode::Up, false),
        (["x", "x", "x"], Mode::Refuses, false),
        (["x", "x", ""], Mode::Up, true),
        (["x", "x", ""], Mode::Mute, true),
        (["x", "x", "x"], Mode::Silent, true),
        (["x", "y", "z"], Mode::Up, false),
    ] {
        let world = World::of(3);
        for (server, token) in owners.into_iter().enumerate().filter(|(_, token)| !token.is_empty()) {
            world.give(server, token).await;
        }
        world.set(2, mode);
        for answer in [world.claim("t").await, world.wait("t").await] {
            let Ok(Answer::Busy(busy)) = answer else { panic!("a majority refuses it: {answer:?}") };
            assert_eq!(busy.stands, stands, "{owners:?} {mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_no_place_in_a_queue() {
    let world = World::of(3);
    assert!(is_granted(&world.claim("x").await));
    assert!(is_busy(&world.wait("t").await));
    assert!(world.release("x").await.unwrap());
    sleep(CLAIM).await;
    assert_eq!(world.owners(), [None, None, None]);
}

/// No server reports that others wait.
#[tokio::test(start_paused = true)]
async fn a_process_that_has_held_a_lock_for_long_is_notified_that_others_wait() {
    let world = World::of(3);
    let heard = away::Heard::attach(&world, "t");
    assert!(is_granted(&world.claim("t").await));
    world.renew("t").await.unwrap();
    assert!(heard.take().is_empty());
    sleep(CLAIM / 2).await;
    world.renew("t").await.unwrap();
    assert_eq!(heard.take(), ["p:k is waited for"]);
    assert!(world.release("t").await.unwrap());
    world.renew("t").await.unwrap();
    assert!(heard.take().is_empty(), "it is forgotten with the release");
}

#[tokio::test(start_paused = true)]
async fn a_release_and_a_renewal_tell_the_truth_about_a_majority() {
    // What each of the three servers says about the token's ownership: y(es), n(o), or no answer.
    for (states, owned) in [
        ("yyn", Some(true)),
        ("yy-", Some(true)),
        ("ynn", Some(false)),
        ("nn-", Some(false)),
        ("yn-", None),
        ("n--", None),
        ("y--", None),
    ] {
        let world = World::of(3);
        for (number, state) in states.chars().enumerate() {
            world.give(number, if state == 'n' { "x" } else { "t" }).await;
            if state == '-' {
                world.set(number, Mode::Silent);
            }
        }
        let renewed = world.renew("t").await.ok().map(|renewed| matches!(renewed, Renewed::Until(_)));
        assert_eq!(renewed, owned, "{states}");
        assert_eq!(world.release("t").await.ok(), owned, "{states}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_where_it_takes_longer() {
    let world = World::of(3);
    assert!(is_granted(&world.claim("t").await));
    sleep(Duration::from_millis(1)).await;
    world.set(2, Mode::Late(Duration::from_millis(200)));
    assert!(world.release("t").await.unwrap());
    assert!(world.owners()[2].is_some());
    world.quorum.wait_for_releases().await;
    assert_eq!(world.owners(), [None, None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_vote_counts_for_nothing() {
    let world = World::of(3);
    *world.servers[1].eligibility.lock().unwrap() = Eligibility::Restarted(Duration::from_secs(9));
    assert!(is_granted(&world.claim("t").await));
    assert!(world.release("t").await.unwrap());
    world.set(2, Mode::Refuses);
    for answer in [world.claim("t").await, world.wait("t").await] {
        let text = answer.unwrap_err().problem.to_string();
        assert!(text.contains("s1: ") && text.contains("no vote for another 10s"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn servers_are_marked_when_all_are_new_and_only_then() {
    let new = Eligibility::Unmarked(Duration::from_secs(9));
    let old = Eligibility::Eligible { is_marked: false };
    let restarted = Eligibility::Restarted(Duration::from_secs(9));
    let marked = Eligibility::InService;
    for (before, after) in [
        ([new, new, new], [marked, marked, marked]),
        ([new, old, new], [marked, marked, marked]),
        ([new, marked, new], [new, marked, new]),
        ([new, old, marked], [new, marked, marked]),
        ([new, new, restarted], [new, new, restarted]),
    ] {
        let world = World::of(3);
        let standings = || world.servers.iter().map(|server| *server.eligibility.lock().unwrap()).collect::<Vec<_>>();
        for (server, eligibility) in world.servers.iter().zip(before) {
            *server.eligibility.lock().unwrap() = eligibility;
        }
        world.set(2, Mode::Refuses);
        world.quorum.connect(by()).await.unwrap();
        assert_eq!(standings()[0], if before[0] == old { marked } else { before[0] }, "not all answer");
        world.set(2, Mode::Up);
        for (server, eligibility) in world.servers.iter().zip(before) {
            *server.eligibility.lock().unwrap() = eligibility;
        }
        world.quorum.connect(by()).await.unwrap();
        assert_eq!(standings(), after, "{before:?}");
    }
}

/// One holder after another: how many tokens each draws at once, and which servers are away meanwhile.
fn holders() -> impl Strategy<Value = Vec<(u32, usize, usize)>> {
    prop::collection::vec((1..4_u32, 0..5_usize, 0..5_usize), 1..12)
}

proptest! {
    #[test]
    fn fencing_tokens_grow_over_changing_majorities(
        ahead in prop::collection::vec(0..5_000_000_u64, 5),
        holders in holders(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let drawn = runtime.block_on(async {
            let world = World::with_clocks(&ahead);
            let mut drawn = Vec::new();
            for (number, (count, away, too)) in holders.into_iter().enumerate() {
                let token = format!("t{number}");
                for server in 0..5 {
                    world.set(server, if server == away || server == too { Mode::Silent } else { Mode::Up });
                }
                assert!(is_granted(&world.claim(&token).await));
                for _ in 0..2 {
                    let first = world.quorum.draw(&KEY.into(), &Token::foreign(&token), None, count, by()).await;
                    let first = first.unwrap().unwrap();
                    drawn.extend((0..u64::from(count)).map(|more| first + more));
                }
                assert!(world.release(&token).await.unwrap());
            }
            drawn
        });
        prop_assert!(drawn.is_sorted_by(|earlier, later| earlier < later), "{drawn:?}");
    }
}
