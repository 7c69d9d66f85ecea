//! Asks to servers that are away, slow or ahead of the others, and messages from a single server.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::votes::Votes;
use super::world::{COMMAND, Mode, PATIENCE, World, ask};
use super::{AWAY, is_busy, is_granted};
use crate::BackendError;
use crate::clock::Deadline;
use crate::store::voter::Eligibility;
use crate::store::{Events, Pushed, Retry, Store, StoreError};

#[tokio::test(start_paused = true)]
async fn any_two_of_five_servers_may_be_away() {
    for mode in AWAY {
        for (one, other) in [(0, 1), (0, 4), (3, 4)] {
            let world = World::of(5);
            world.set(one, mode);
            world.set(other, mode);
            assert!(is_granted(&world.claim("t").await));
            assert!(world.release("t").await.unwrap());
            sleep(COMMAND).await;
            assert!(is_granted(&world.wait("u").await), "{mode:?} {one} {other}");
            assert!(is_busy(&world.wait("t").await), "{mode:?} {one} {other}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn with_all_servers_away_an_ask_ends_at_once_or_with_its_time() {
    for (mode, longest) in [(Mode::Refuses, Duration::ZERO), (Mode::Silent, COMMAND)] {
        let world = World::of(3);
        (0..3).for_each(|number| world.set(number, mode));
        for _ in 0..2 {
            let start = Instant::now();
            let error = world.wait("t").await.unwrap_err();
            assert!(start.elapsed() <= longest + Duration::from_millis(3), "{mode:?}: {:?}", start.elapsed());
            assert_eq!((error.retry, error.out_of_time), (Retry::Later, mode == Mode::Silent));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_with_a_minority_is_not_refused_while_others_may_soon_answer() {
    let world = World::of(3);
    world.give(0, "x").await;
    world.set(2, Mode::Late(PATIENCE / 2));
    assert!(is_granted(&world.claim("t").await));
    let owner = |token: &str| Some(token.to_owned());
    assert_eq!(world.owners(), [owner("x"), owner("t"), owner("t")]);
}

#[tokio::test(start_paused = true)]
async fn servers_are_not_marked_as_new_while_one_has_not_said_that_it_is() {
    let new = Eligibility::Unmarked(Duration::from_secs(9));
    for mode in AWAY {
        let world = World::of(3);
        for server in &world.servers {
            *server.eligibility.lock().unwrap() = new;
        }
        world.set(2, mode);
        world.quorum.connect(Deadline::after(COMMAND * 9)).await.unwrap();
        assert!(world.servers.iter().all(|server| *server.eligibility.lock().unwrap() == new), "{mode:?}");
    }
}

/// A refusal waits for the servers that usually answer soon. A server counts as slow after it leaves a command with enough time unanswered.
#[tokio::test(start_paused = true)]
async fn an_unanswered_brief_command_says_nothing_about_a_server() {
    for (time, is_waited_for) in [(Duration::from_millis(20), true), (COMMAND, false)] {
        let world = World::of(3);
        assert!(is_granted(&world.claim("x").await));
        world.set(0, Mode::Silent);
        assert!(is_granted(&world.quorum.claim(&ask("x"), Deadline::after(time)).await));
        sleep(time + Duration::from_millis(1)).await;
        let start = Instant::now();
        assert!(is_busy(&world.claim("t").await));
        assert_eq!(!start.elapsed().is_zero(), is_waited_for, "{time:?}");
    }
}

/// The messages that a process receives.
#[derive(Default)]
pub(super) struct Heard(Mutex<Vec<String>>);

impl Heard {
    pub(super) fn attach(world: &World, process: &str) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        let events: Weak<Self> = Arc::downgrade(&heard);
        world.quorum.attach(process, events);
        heard
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Events for Heard {
    fn on_grant(&self, key: &str, pushed: &Pushed) {
        self.0.lock().unwrap().push(format!("{key} is granted to {}", pushed.token.as_str()));
    }

    fn on_contention(&self, key: &str) {
        self.0.lock().unwrap().push(format!("{key} is waited for"));
    }

    fn on_interruption(&self, _: &dyn Fn(&str) -> bool) {}
}

#[test]
fn too_few_votes_are_final_if_no_majority_can_follow_and_late_if_only_time_was_short() {
    for servers in [3_usize, 5, 7] {
        for (never, late, other) in (0..=servers)
            .flat_map(|never| (0..=servers).map(move |late| (never, late)))
            .flat_map(|(never, late)| (0..=servers).map(move |other| (never, late, other)))
            .filter(|(never, late, other)| never + late + other <= servers)
        {
            let mut votes: Votes<(), ()> = Votes::new(servers);
            let problem = || BackendError::new("why");
            let refused = (0..never).map(|_| StoreError::never(problem()));
            let silent = (0..late).map(|_| StoreError { out_of_time: true, ..StoreError::later(problem()) });
            let failed = (0..other).map(|_| StoreError::later(problem()));
            for (number, error) in refused.chain(silent).chain(failed).enumerate() {
                votes.failed.push((number, error));
            }
            votes.yes = (never + late + other..servers).map(|number| (number, ())).collect();
            let error = votes.too_few(|number| format!("s{number}"));
            let is_final = 2 * (servers - never) <= servers;
            assert_eq!(error.retry == Retry::Never, is_final, "{votes:?}");
            assert_eq!(error.out_of_time, late > 0 && 2 * (servers - never - other) > servers, "{votes:?}");
            let failed = format!("{} of {servers} servers failed", votes.failed.len());
            assert!(error.problem.to_string().contains(&failed), "{error:?}");
        }
    }
}
