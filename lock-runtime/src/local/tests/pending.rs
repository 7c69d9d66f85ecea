//! Tests: what a slot concludes from answers, and from missing answers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::super::slot::Slot;
use super::round;
use crate::clock::{Deadline, Moment};
use crate::lock::{Action, Lock, PendingAsk, ReleaseDone, Trigger};
use crate::protocol::{Answer, Ask, Busy, Cause, Grant, Pushed, Renewal, Renewed};
use crate::timing::CLAIM;
use crate::token::{Process, Token};
use crate::{LockGuard, LockManager};

/// A held lock, and its slot.
async fn held() -> (LockManager, LockGuard, Arc<Slot>) {
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let slot = locks.core().table().get(guard.key()).unwrap();
    (locks, guard, slot)
}

fn ask(token: &Token, wait: bool) -> Ask {
    let (key, give_up) = ("p:k".into(), Deadline::after(CLAIM));
    Ask {
        key,
        token: token.clone(),
        share: None,
        claim: CLAIM,
        wait,
        replaces: false,
        fences: 0,
        give_up,
        cause: Cause::Task,
    }
}

fn busy(owner: Token, endless: bool) -> Busy {
    Busy { owner, frees_in: None, endless, anchor: None, pause: Duration::ZERO, yields: false }
}

fn refused() -> Answer {
    Answer::Busy(busy(Token::foreign("x"), false))
}

fn granted() -> Answer {
    Answer::Granted(Grant { until: Deadline::after(CLAIM), contended: false, fence: None })
}

#[tokio::test(start_paused = true)]
async fn what_a_refused_claim_was_asked_under_is_not_asked_under_again() {
    for (wait, is_kept) in [(false, false), (true, true)] {
        let (locks, _guard, slot) = held().await;
        let token = locks.core().next_token(false, None);
        slot.state.lock().lock.set_pending(Some(PendingAsk::new(token.clone(), None, CLAIM)));
        assert!(slot.on_answer(&ask(&token, wait), refused()));
        assert_eq!(slot.ask(|lock| lock.pending().is_some_and(|pending| pending.token == token)), is_kept, "rule L3");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_is_told_from_one_that_somebody_has() {
    let (locks, _guard, slot) = held().await;
    let own = slot.state.lock().lock.lease().unwrap().token.clone();
    let [given_up, ending] = [(); 2].map(|()| locks.core().next_token(false, None));
    slot.state.lock().lock.note_release_begun(&ending);
    for (token, is_known) in [(&own, true), (&given_up, false), (&ending, true)] {
        let (claim, token) = (CLAIM, token.clone());
        assert_eq!(slot.on_answer(&ask(&token, true), granted()), is_known);
        assert!(slot.on_answer(&ask(&token, true), refused()), "there is nothing to withdraw");
        let pushed =
            Pushed { token, claim, store_micros: 0, contended: false, node: None, unconfirmed: false, partial: false };
        assert_eq!(slot.on_grant(&pushed), is_known);
    }
    assert!(
        matches!(slot.note_release_done(&ending), ReleaseDone::Done { may_be_granted_again: true, .. }),
        "it was granted once more"
    );
}

/// A task whose turn was taken finds out late that its ask is wanted no more. Another task got the lock under the same token.
#[tokio::test(start_paused = true)]
async fn a_token_that_a_task_is_just_releasing_is_withdrawn_only_then() {
    for is_releasing in [true, false] {
        let (locks, guard, slot) = held().await;
        let (takings, token) = (slot.takings(), slot.state.lock().lock.take_lease().unwrap().token);
        slot.step(|_, out| out.takes_turn = true);
        if is_releasing {
            slot.state.lock().lock.note_release_begun(&token);
        }
        let ask = ask(&token, true);
        let mut unanswered = pin!(std::future::pending::<()>());
        let late = slot.while_wanted(takings, &ask, unanswered.as_mut());
        assert_eq!(late.now_or_never(), Some(None));
        assert_eq!(locks.is_locked("p", "k").await.unwrap(), is_releasing);
        let done = slot.note_release_done(&token);
        assert_eq!(matches!(done, ReleaseDone::Done { may_be_granted_again: true, .. }), is_releasing, "{done:?}");
        drop(guard);
    }
}

/// Else a late task could take the token for one that was given up, in the moment before the release is sent.
#[tokio::test(start_paused = true)]
async fn a_token_is_known_as_being_released_when_its_lease_is_gone() {
    for is_queued in [true, false] {
        let (_locks, guard, slot) = held().await;
        let turn = slot.ask(Lock::turn).unwrap();
        let token = slot.state.lock().lock.lease().unwrap().token.clone();
        if is_queued {
            slot.state.lock().lock.lease_mut().unwrap().expose();
        }
        slot.step(|lock, out| lock.end(turn, false, &*slot, Moment::now(), out));
        assert!(!slot.has_lease());
        assert_eq!(slot.leave_to_user(&token), is_queued);
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_elsewhere_is_named_by_its_label_or_as_one_without_an_end() {
    let (locks, _guard, slot) = held().await;
    let ours = Process::new("ada").next_token(false, None);
    let stranger = || Token::foreign("a stranger's");
    for (busy, holder) in [
        (busy(ours.clone(), false), Some("ada")),
        (busy(ours, true), Some("ada")),
        (busy(stranger(), false), None),
        (busy(stranger(), true), Some("another client, without an expiry")),
    ] {
        let mut pending = PendingAsk::new(locks.core().next_token(false, None), None, CLAIM);
        pending.on_answer(&ask(&pending.token, true), Answer::Busy(busy), &*slot);
        slot.state.lock().lock.set_pending(Some(pending));
        assert_eq!(slot.ask(Lock::holder_elsewhere).as_deref(), holder);
    }
    slot.state.lock().lock.set_pending(None);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_owed_and_sent_again_ever_more_slowly_until_the_hold_ends() {
    let (_locks, guard, slot) = held().await;
    let (key, token) = (guard.key().into(), slot.state.lock().lock.lease().unwrap().token.clone());
    let renewal =
        Renewal { key, token, share: None, lease: Duration::from_secs(30), grace: Duration::ZERO, arms: false };
    let confirmed = Renewed::Until(Deadline::after(renewal.lease));
    let timer = || slot.state.lock().entries.due.map(|(at, _)| at - Instant::now());
    assert!(matches!(slot.on_renewal(&renewal, Moment::now(), Some(confirmed)), Action::Done));
    for millis in [50, 100, 200, 400, 800, 800] {
        assert!(matches!(slot.on_renewal(&renewal, Moment::now(), None), Action::Done));
        assert_eq!(timer(), Some(Duration::from_millis(millis)));
        let action = slot.next_action(Trigger::Timer, &round());
        assert!(matches!(action, Action::Renew(..)), "{action:?}");
    }
    slot.state.lock().lock.lease_mut().unwrap().until = Deadline::after(Duration::ZERO);
    assert!(matches!(slot.on_renewal(&renewal, Moment::now(), None), Action::Lost(..)));
}
