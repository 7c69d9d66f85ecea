//! Tests: messages about a token that no task here uses any longer.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::LockManager;
use crate::clock::{Deadline, Moment};
use crate::mutants::{Mutant, Seeded};
use crate::share::Share;
use crate::store::{Answer, Ask, Events as _, Pushed, Release, Store as _, exactly_one};
use crate::timing::CLAIM;
use crate::token::Token;

fn ask(token: &Token, share: Option<Share>) -> Ask {
    Ask {
        key: "p:k".into(),
        token: token.clone(),
        share,
        claim: CLAIM,
        wait: false,
        replaces: None,
        fences: 0,
        give_up: Deadline::after(CLAIM),
    }
}

/// Two processes. The first was granted a lease with this share, for a task that is gone.
async fn granted_to_nobody(share: Option<Share>) -> (LockManager, LockManager, Token) {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    let token = locks.core().next_token(Moment::now(), false, share, None);
    let answer = exactly_one(locks.core().store().ask(&[ask(&token, share)], Deadline::after(CLAIM)).await).unwrap();
    assert!(matches!(answer, Answer::Granted(_)));
    assert!(beside.lock("p", "k").try_acquire().await.unwrap().is_none());
    (locks, beside, token)
}

fn shares() -> [Option<Share>; 3] {
    [None, Some(Share::READ), Share::permit(3)]
}

#[tokio::test(start_paused = true)]
async fn a_stray_grant_is_released_as_the_kind_of_lease_it_is() {
    for bug in [None, Some(Mutant::StrayShareIsExclusive), Some(Mutant::StrayGrantKept)] {
        for share in shares() {
            let _seeded = Seeded::begin(bug);
            let (locks, beside, token) = granted_to_nobody(share).await;
            let (claim, store_micros) = (Duration::from_secs(2), 0);
            let (node, contended, unconfirmed) = (None, false, false);
            locks.core().on_grant("p:k", &Pushed { token, claim, store_micros, contended, node, unconfirmed });
            let is_free = beside.lock("p", "k").try_acquire().await.unwrap().is_some();
            let is_released = match bug {
                None => true,
                Some(Mutant::StrayGrantKept) => false,
                Some(_) => share.is_none(),
            };
            assert_eq!(is_free, is_released, "{share:?}, {bug:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unused_lease_that_was_taken_by_force_is_released_at_once() {
    for bug in [None, Some(Mutant::StrayShareIsExclusive)] {
        for share in shares() {
            let _seeded = Seeded::begin(bug);
            let (_locks, beside, _token) = granted_to_nobody(share).await;
            let begin = Instant::now();
            assert!(beside.force_release("p", "k").await.unwrap());
            drop(beside.lock("p", "k").timeout(CLAIM * 2).acquire().await.unwrap());
            // Otherwise the mark expires after a claim.
            let is_at_once = begin.elapsed() < CLAIM / 2;
            assert_eq!(is_at_once, bug.is_none() || share.is_none(), "{share:?}, {bug:?}");
        }
    }
}

/// An overtaken task learns late that its ask is no longer wanted. By then another task got the lock under the same token.
#[tokio::test(start_paused = true)]
async fn a_token_that_a_task_is_releasing_is_withdrawn_only_after_the_release() {
    for is_releasing in [true, false] {
        let locks = LockManager::in_memory();
        let guard = locks.lock("p", "k").acquire().await.unwrap();
        let slot = locks.core().table().get(guard.key()).unwrap();
        let overtakes = slot.overtakes();
        let token = slot.state.lock().lock.take_any_lease().token;
        slot.step(|_, out| out.is_overtaken = true);
        if is_releasing {
            slot.state.lock().lock.note_ending(token.clone(), 0, None);
        }
        let ask = ask(&token, None);
        let mut unanswered = pin!(std::future::pending::<()>());
        let late = slot.while_wanted(overtakes, &ask, unanswered.as_mut());
        assert_eq!(late.now_or_never(), Some(None));
        assert_eq!(locks.is_locked("p", "k").await.unwrap(), is_releasing);
        let ended = slot.end_use(&token);
        assert_eq!(ended.is_some_and(|ended| ended.may_be_granted_again), is_releasing);
        drop(guard);
    }
}

/// The keeper has sent the withdrawal too, but perhaps before the server executed the ask.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_whose_connection_ended_before_its_answer_is_sent_again() {
    for (bug, is_free) in [(None, true), (Some(Mutant::LostWithdrawalForgotten), false)] {
        let _seeded = Seeded::begin(bug);
        let (locks, beside, token) = granted_to_nobody(None).await;
        locks.core().on_lost_withdrawal(Release::withdrawal(&"p:k".into(), &token, CLAIM));
        assert_eq!(beside.lock("p", "k").try_acquire().await.unwrap().is_some(), is_free, "{bug:?}");
    }
}
