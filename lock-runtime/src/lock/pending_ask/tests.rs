use tokio::time::advance;

use super::super::tests::plain::Plain;
use super::*;
use crate::BackendError;
use crate::clock::Drift;
use crate::mutants::{Mutant, Seeded};
use crate::timing::CLAIM;

/// The ask of a waiting task.
fn pending() -> PendingAsk {
    PendingAsk { waits: true, ..PendingAsk::new(Token::foreign("t"), None, CLAIM) }
}

fn ask(pending: &PendingAsk) -> Ask {
    pending.again(&Plain::new(), Deadline::after(CLAIM))
}

fn refuse(pending: &mut PendingAsk, busy: Busy) {
    pending.on_answer(&ask(pending), Answer::Busy(busy), &Plain::new());
}

fn busy(owner: &str, store_micros: u64, frees_in: u64) -> Busy {
    let anchor = Some(Anchor { sent: Moment::now(), store_micros, drift: Drift::DEFAULT, node: None });
    let (owner, frees_in) = (Token::foreign(owner), Some(Duration::from_millis(frees_in)));
    Busy { owner, frees_in, endless: false, anchor, pause: Duration::ZERO, stands: false }
}

#[test]
fn a_task_asks_again_when_its_connection_broke_before_it_read_the_answer() {
    for is_interrupted in [false, true] {
        let mut pending = pending();
        pending.note_sent(Moment::now(), 0, true);
        if is_interrupted {
            pending.on_interruption();
        }
        refuse(&mut pending, busy("x", 1, 9000));
        assert!(pending.is_queued());
        assert_eq!(
            pending.only_waits(),
            !is_interrupted,
            "the task asks again, and so finds out whether the server is there"
        );
        pending.note_sent(Moment::now(), 0, true);
        refuse(&mut pending, busy("x", 2, 9000));
        assert!(pending.only_waits());
    }
}

#[test]
fn a_pushed_grant_is_over_when_the_server_says_later_that_another_has_the_lock() {
    for (asked_at, is_granted) in [(99, true), (100, true), (101, false)] {
        let mut pending = pending();
        let (token, claim) = (pending.token.clone(), CLAIM);
        pending.on_push(&Pushed { token, claim, store_micros: 100, contended: false, node: None, unconfirmed: false });
        refuse(&mut pending, busy("x", asked_at, 9));
        assert_eq!(pending.is_granted(), is_granted, "{asked_at}");
    }
}

#[test]
fn an_owner_that_is_still_there_after_its_lease_should_have_expired_renews() {
    let mut pending = pending();
    for (owner, frees_in, renews) in
        [("x", 9000, false), ("x", 0, false), ("x", 11, true), ("x", 9000, true), ("y", 0, false), ("y", 99, true)]
    {
        refuse(&mut pending, busy(owner, 1, frees_in));
        assert_eq!(pending.refusal.as_ref().is_some_and(|refusal| refusal.owner_renews), renews, "{owner} {frees_in}");
    }
}

#[test]
fn an_ask_that_came_just_before_the_end_of_a_lease_is_repeated_at_that_end() {
    let mut pending = pending();
    for frees_in in [0, 1, 10] {
        refuse(&mut pending, busy("x", 1, 0));
        refuse(&mut pending, busy("x", 1, frees_in));
        let next = pending.pause_before_ask(Moment::now());
        assert!(next.is_none_or(|next| next <= Duration::from_millis(frees_in)), "{frees_in}: {next:?}");
    }
}

/// The grant was taken before it was read. The store still has the ask's own mark, which a waiter would wait for.
#[test]
fn an_ask_whose_grant_was_taken_by_force_starts_again() {
    for (bug, owner, starts_again) in
        [(None, "t|forced", true), (None, "x|forced", false), (Some(Mutant::ForcedAskWaits), "t|forced", false)]
    {
        for waits in [true, false] {
            let (_seeded, mut pending) = (Seeded::begin(bug), PendingAsk { waits, ..pending() });
            refuse(&mut pending, busy(owner, 1, 9));
            assert_eq!(pending.is_forced(), starts_again, "{owner}, {bug:?}");
            assert_eq!(pending.may_stand(), waits || starts_again, "{owner}, {bug:?}: it is withdrawn");
        }
    }
}

/// The waiters in front may be dead with unread grants. So the keeper asks when the owner's lease is over, even for a task that is not
/// polled.
#[tokio::test(start_paused = true)]
async fn a_pause_ends_with_the_lease_of_an_owner_that_was_not_seen_to_renew() {
    let pause = Duration::from_secs(8);
    for (bug, renews, pauses) in
        [(None, false, false), (None, true, true), (Some(Mutant::PausesPastOwner), false, true)]
    {
        let (_seeded, env, mut pending) = (Seeded::begin(bug), Plain::new(), pending());
        if renews {
            refuse(&mut pending, busy("x", 1, 0));
        }
        refuse(&mut pending, Busy { pause, ..busy("x", 1, 900) });
        assert!(pending.pauses(&env));
        advance(Duration::from_millis(901)).await;
        assert_eq!(pending.pauses(&env), pauses, "{bug:?}, {renews}");
        advance(pause).await;
        assert!(!pending.pauses(&env));
    }
}

/// A task that is polled late reads its answer long after the keeper has asked again.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_read_after_a_later_one_says_nothing_new() {
    let short = Duration::from_millis(9);
    for (bug, micros, owner) in
        [(None, 1, "later"), (None, 3, "earlier"), (Some(Mutant::OlderRefusalCounts), 1, "earlier")]
    {
        let (_seeded, mut pending) = (Seeded::begin(bug), pending());
        let earlier = Busy { pause: CLAIM, ..busy("earlier", micros, 9000) };
        advance(short).await;
        refuse(&mut pending, busy("later", 2, 9));
        advance(short).await;
        refuse(&mut pending, earlier);
        let known = pending.busy().is_some_and(|busy| busy.owner == Token::foreign(owner));
        assert!(known, "{bug:?}: the server's clock says {micros}");
        assert_eq!(pending.pauses(&Plain::new()), owner == "earlier");
    }
}

/// Otherwise it would fail a later task that the store would not refuse.
#[test]
fn a_denial_is_forgotten_with_the_next_answer_the_next_push_and_the_next_token() {
    for (bug, is_told) in [(None, false), (Some(Mutant::DenialOutlivesAnswer), true)] {
        let _seeded = Seeded::begin(bug);
        let denied = || {
            let mut pending = pending();
            pending.denial = Some(Box::new(StoreError::never(BackendError::new("NOPERM"))));
            pending
        };
        assert!(denied().denial.is_some());
        let (mut answered, mut pushed, mut restarted) = (denied(), denied(), denied());
        refuse(&mut answered, busy("x", 1, 9));
        pushed.on_push(&Pushed {
            token: Token::foreign("t"),
            claim: CLAIM,
            store_micros: 0,
            contended: false,
            node: None,
            unconfirmed: false,
        });
        restarted.restart(Token::foreign("u"));
        assert_eq!(answered.denial.is_some(), is_told, "{bug:?}");
        assert_eq!(pushed.denial.is_some(), is_told, "{bug:?}");
        assert!(restarted.denial.is_none());
    }
}
