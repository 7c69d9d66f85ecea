//! What a connection concludes from silence, and what the server does with late commands.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::time::{Instant, sleep, timeout};

use super::network::{Conditions, Network};
use super::process::{connect, of_links};
use super::seeded::Bug;
use super::servers::model_server;
use super::time::Simulated;
use crate::clock::{Deadline, Moment};
use crate::mutants::{Mutant, Seeded};
use crate::settings::Settings;
use crate::store::redis::RedisStore;
use crate::store::redis::connections::of_callers;
use crate::store::{Answer, Ask, Events, Ownership, Pushed, Reach, Release, Renewal, Renewed, Store, exactly_one};
use crate::token::{Process as Caller, Token};

mod deletion;
mod masters;

const COMMAND: Duration = Duration::from_millis(500);

/// Counts how often the connection was given up or made again.
#[derive(Default)]
struct Interruptions(AtomicU32);

impl Events for Interruptions {
    fn on_grant(&self, _: &str, _: &Pushed) {}

    fn on_contention(&self, _: &str) {}

    fn on_interruption(&self, _: &dyn Fn(&str) -> bool) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store over one connection, and its interruptions.
struct Scene {
    network: Arc<Network>,
    caller: Caller,
    store: RedisStore,
    seen: Arc<Interruptions>,
    _time: Simulated,
}

impl Scene {
    async fn begin() -> Self {
        Self::begin_at(Duration::ZERO).await
    }

    /// With the server at this distance.
    async fn begin_at(round_trip: Duration) -> Self {
        Self::on(ModelServer::new(), round_trip).await
    }

    async fn on(server: ModelServer, round_trip: Duration) -> Self {
        let time = Simulated::begin();
        let network = Network::new(server, 1.0, Rng::with_seed(0));
        network.move_away(round_trip);
        let caller = Caller::new("p");
        let endpoint = network.host(caller.id()).endpoint();
        let settings = Settings { command_timeout: COMMAND, connect_timeout: COMMAND, ..Settings::default() };
        let store = of_links(&settings).to_server(endpoint, Some(of_callers(caller.id())), None);
        let seen = Arc::new(Interruptions::default());
        let events: Weak<Interruptions> = Arc::downgrade(&seen);
        store.attach(caller.id(), events);
        store.connect().await.unwrap();
        Self { network, caller, store, seen, _time: time }
    }

    /// An ask that is given up after `give_up`; the command itself may take longer.
    fn ask(&self, give_up: Duration) -> Ask {
        ask("p:k", self.caller.next_token(Moment::now(), false, None, None), give_up)
    }

    async fn beat(&self) {
        self.store.heartbeat(Deadline::after(COMMAND)).await;
    }

    fn interruptions(&self) -> u32 {
        self.seen.0.load(Ordering::Relaxed)
    }
}

fn ask(key: &str, token: Token, give_up: Duration) -> Ask {
    Ask {
        key: key.into(),
        token,
        share: None,
        claim: COMMAND * 4,
        wait: true,
        replaces: None,
        fences: 0,
        give_up: Deadline::after(give_up),
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_arrives_after_its_task_gave_up_does_nothing() {
    let executed = Bug::Scripts(&[("if not_after > 0 and now() > not_after then", "if false then")]);
    for bug in [None, Some(executed)] {
        let scene = Scene::on(model_server(bug, None), Duration::ZERO).await;
        for (frozen, comes_late) in [(COMMAND / 10, false), (COMMAND / 2, true)] {
            scene.network.freeze(frozen);
            let ask = scene.ask(COMMAND / 4);
            let asked = scene.store.ask(std::slice::from_ref(&ask), Deadline::after(COMMAND)).await;
            let (answer, is_refused) = (exactly_one(asked).unwrap(), comes_late && bug.is_none());
            assert_eq!(matches!(answer, Answer::Late), is_refused, "{answer:?}");
            let released = scene.store.release_one(&ask.withdrawal(), Deadline::after(COMMAND)).await.unwrap();
            assert_eq!(released == Ownership::Owned, !is_refused);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_given_up_when_nothing_was_answered_for_two_command_timeouts() {
    let scene = Scene::begin().await;
    scene.network.freeze(COMMAND * 9);
    scene.beat().await;
    assert_eq!(scene.interruptions(), 0);
    scene.beat().await;
    assert_eq!(scene.interruptions(), 1);
    scene.network.freeze(Duration::ZERO);
    scene.beat().await;
    // The new connection: pushes in between were missed.
    assert_eq!(scene.interruptions(), 2);
}

/// The last part of a short time says nothing about a distant server: its answers arrive when no command waits for them any longer. A
/// connection that receives nothing is noticed anyway.
#[tokio::test(start_paused = true)]
async fn a_connection_is_not_given_up_for_commands_that_had_less_time_than_an_answer_takes() {
    for (bug, is_given_up) in [(None, false), (Some(Mutant::OthersUnheard), true)] {
        let scene = Scene::begin_at(COMMAND / 5 * 4).await;
        let _seeded = Seeded::begin(bug);
        let tries = async |span: Duration| {
            let end = Instant::now() + span;
            while Instant::now() < end {
                scene.store.claim(&scene.ask(COMMAND), Deadline::after(COMMAND / 5)).await.unwrap_err();
            }
        };
        tries(COMMAND * 4).await;
        assert_eq!(scene.interruptions() > 0, is_given_up, "{bug:?}");
        let before = scene.interruptions();
        scene.network.deafen(scene.caller.id());
        tries(COMMAND * 4).await;
        assert!(scene.interruptions() > before, "{bug:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_something_was_answered_meanwhile_is_kept() {
    let scene = Scene::begin().await;
    for _ in 0..4 {
        scene.network.freeze(COMMAND + COMMAND / 10);
        scene.beat().await;
        sleep(COMMAND).await;
        scene.beat().await;
    }
    assert_eq!(scene.interruptions(), 0);
}

/// Requests that fail at once send nothing. One of them makes the connection check whether the server is back.
#[tokio::test(start_paused = true)]
async fn a_silent_server_that_is_back_is_noticed_by_requests_that_do_not_wait_for_it() {
    for (bug, is_away) in [(None, false), (Some(Mutant::SilenceNotAsked), true)] {
        let scene = Scene::begin().await;
        let _seeded = Seeded::begin(bug);
        scene.network.freeze(COMMAND / 2);
        scene.store.claim(&scene.ask(COMMAND), Deadline::after(COMMAND / 5)).await.unwrap_err();
        assert!(scene.store.outage("p:k").is_some());
        scene.store.begin_to_connect();
        sleep(COMMAND / 2).await;
        assert_eq!(scene.store.outage("p:k").is_some(), is_away, "{bug:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_reason_to_give_up_a_connection() {
    let scene = Scene::begin().await;
    // The server does not know the script yet, and replies so.
    let answer = exactly_one(scene.store.ask(&[scene.ask(COMMAND)], Deadline::after(COMMAND)).await);
    assert!(matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
    assert_eq!(scene.interruptions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_command_is_certainly_not_sent_when_there_was_no_connection_from_the_first() {
    let scene = Scene::begin().await;
    let reach = async || {
        let claimed = scene.store.claim(&scene.ask(COMMAND), Deadline::after(COMMAND)).await;
        claimed.unwrap_err().reach
    };
    scene.network.freeze(COMMAND * 3);
    assert_eq!(reach().await, Reach::Unanswered, "the connection is silent");
    sleep(COMMAND * 3).await;
    scene.beat().await;
    scene.network.set_conditions(Conditions { cut_before: 1.0, ..Conditions::default() });
    assert_eq!(
        reach().await,
        Reach::Unanswered,
        "the connection broke after it was sent, and there is no other connection"
    );
    assert_eq!(reach().await, Reach::Unsent, "no connection can be set up");
    scene.network.set_conditions(Conditions { refused: 1.0, ..Conditions::default() });
    sleep(COMMAND).await;
    assert_eq!(reach().await, Reach::Unsent, "connections are refused");
    scene.network.set_conditions(Conditions::default());
    scene.network.part(scene.caller.id(), COMMAND * 9);
    sleep(COMMAND).await;
    assert_eq!(reach().await, Reach::Unsent, "no connection is made in time");
}

/// The task waits for a connection, and is polled again when its time is over. By then the keeper has withdrawn the ask.
#[tokio::test(start_paused = true)]
async fn a_command_whose_time_is_over_when_its_task_has_a_connection_is_not_sent() {
    for (bug, reach) in [(None, Some(Reach::Unsent)), (Some(Mutant::SentTooLate), None)] {
        let _seeded = Seeded::begin(bug);
        let scene = Scene::begin().await;
        scene.network.cut(None);
        scene.network.set_conditions(Conditions { refused: 1.0, ..Conditions::default() });
        scene.beat().await;
        scene.network.set_conditions(Conditions::default());
        sleep(COMMAND).await;
        let ask = scene.ask(COMMAND);
        let mut claim = Box::pin(scene.store.claim(&ask, Deadline::after(COMMAND)));
        assert!(claim.as_mut().now_or_never().is_none(), "it waits for a connection");
        sleep(COMMAND * 2).await;
        assert_eq!(claim.await.err().map(|error| error.reach), reach, "{bug:?}");
        sleep(COMMAND).await;
        let is_sent = scene.network.server(ModelServer::snapshot).iter().any(|(key, _)| **key == *ask.key);
        assert_eq!(is_sent, bug.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_waits_for_others_to_go_together_goes_alone_when_there_are_none() {
    let scene = Scene::begin().await;
    let ask = scene.ask(COMMAND);
    assert!(matches!(scene.store.claim(&ask, Deadline::after(COMMAND)).await, Ok(Answer::Granted(_))));
    scene.network.freeze(COMMAND / 10);
    let release = Release { contended: false, ..ask.withdrawal() };
    let release_one = scene.store.release_one(&release, Deadline::after(COMMAND));
    let ((), (), released) = tokio::join!(biased; scene.beat(), scene.beat(), release_one);
    assert_eq!(released.unwrap(), Ownership::Owned);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_finds_a_connection_that_is_gone_and_makes_another() {
    let scene = Scene::begin().await;
    scene.network.deafen(scene.caller.id());
    for _ in 0..2 {
        scene.beat().await;
    }
    assert_eq!(scene.interruptions(), 1);
    scene.beat().await;
    assert!(!scene.network.is_deaf(scene.caller.id()));
    assert_eq!(scene.interruptions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_keeps_a_lease_for_longer_than_its_holder_counts_on() {
    let scene = Scene::begin().await;
    let ask = scene.ask(COMMAND);
    let by = || Deadline::after(COMMAND);
    assert!(matches!(scene.store.claim(&ask, by()).await, Ok(Answer::Granted(_))));
    let (lease, grace) = (Duration::from_secs(9), Duration::from_secs(1));
    let renewal =
        Renewal { key: Arc::clone(&ask.key), token: ask.token.clone(), share: None, lease, grace, arms: false };
    let renewed = exactly_one(scene.store.renew(&[renewal], by()).await);
    assert!(matches!(renewed, Ok(Renewed::Until(until)) if until.span() < lease), "{renewed:?}");
    let kept = scene.network.server(|server, now| {
        let keys = server.snapshot(now);
        let (_, lock) = keys.into_iter().find(|(key, _)| **key == *ask.key).unwrap();
        Duration::from_micros(lock.expires_micros.unwrap() - now)
    });
    assert!(kept > lease + grace / 2 && kept <= lease + grace, "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn only_for_the_owner_of_a_lock_a_server_raises_what_it_draws_next() {
    use crate::store::voter::Voter;

    let scene = Scene::begin().await;
    let (owner, other) = (scene.ask(COMMAND), scene.ask(COMMAND));
    let by = || Deadline::after(COMMAND);
    assert!(matches!(scene.store.claim(&owner, by()).await, Ok(Answer::Granted(_))));
    let draw = async || scene.store.draw(&owner.key, &owner.token, None, 1, by()).await.unwrap().unwrap();
    let first = draw().await;
    let ahead = first + 1_000_000_000;
    assert!(!scene.store.raise(&owner.key, &other.token, ahead, by()).await.unwrap());
    assert!((first + 1..ahead).contains(&draw().await));
    assert!(scene.store.raise(&owner.key, &owner.token, ahead, by()).await.unwrap());
    assert_eq!(draw().await, ahead + 1);
}

/// A server that stalled while the connection was made seems distant, until it answers at once.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_slow_once_is_not_far_away() {
    for (bug, is_near) in [(None, true), (Some(Mutant::SlowIsFar), false)] {
        let _time = Simulated::begin();
        let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
        let _seeded = Seeded::begin(bug);
        network.move_away(Duration::from_millis(40));
        let locks = connect(&network, "p");
        let slow = async {
            // After two handshakes.
            sleep(Duration::from_millis(90)).await;
            network.freeze(Duration::from_millis(1500));
        };
        let (held, ()) = tokio::join!(locks.lock("k", &0).timeout(Duration::from_secs(3)).acquire(), slow);
        held.unwrap().release().await.unwrap();
        assert_eq!(locks.core().store().round_trip() < Duration::from_millis(50), is_near, "{bug:?}");
    }
}

/// An address that follows the master may by now lead to another server.
#[tokio::test(start_paused = true)]
async fn a_server_that_may_not_be_written_to_any_more_is_left_but_not_at_once() {
    for (bug, is_left) in [(None, true), (Some(Mutant::ReadOnlyServerKept), false)] {
        let scene = Scene::begin().await;
        let _seeded = Seeded::begin(bug);
        scene.network.server(|server, _| {
            server.patch("local function ask", "error({ err = 'READONLY no' })\nlocal function ask");
        });
        for is_old in [false, true] {
            exactly_one(scene.store.ask(&[scene.ask(COMMAND)], Deadline::after(COMMAND)).await).unwrap_err();
            assert_eq!(scene.interruptions() > 0, is_old && is_left, "{bug:?}");
            sleep(COMMAND * 3).await;
        }
    }
}

/// At the same address, another server has replaced the one that refuses.
#[tokio::test(start_paused = true)]
async fn a_command_that_a_former_master_refused_is_sent_to_the_next_one_and_once_to_the_same() {
    for (bug, is_answered) in [(None, true), (Some(Mutant::RefusalIsLast), false)] {
        let scene = Scene::begin_at(COMMAND / 20).await;
        let _seeded = Seeded::begin(bug);
        let (well, refusing) = ("local function ask", "error({ err = 'READONLY no' })\nlocal function ask");
        let patch = |from, to| scene.network.server(|server, _| server.patch(from, to));
        sleep(COMMAND * 3).await;
        patch(well, refusing);
        let asks = [scene.ask(COMMAND)];
        let mut asking = pin!(scene.store.ask(&asks, Deadline::after(COMMAND)));
        let answered = loop {
            match timeout(COMMAND / 500, &mut asking).await {
                Ok(answers) => break exactly_one(answers),
                Err(_) if scene.interruptions() > 0 => patch(refusing, well),
                Err(_) => {}
            }
        };
        assert_eq!(answered.is_ok(), is_answered, "{bug:?}: {answered:?}");
        // The same server is still there.
        patch(well, refusing);
        let before = scene.interruptions();
        sleep(COMMAND * 3).await;
        exactly_one(scene.store.ask(&[scene.ask(COMMAND)], Deadline::after(COMMAND)).await).unwrap_err();
        assert!(scene.interruptions() <= before + 2, "one connection is made again");
    }
}
