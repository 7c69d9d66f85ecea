//! Tests: messages about a token that no task here uses any more.

use std::time::Duration;

use tokio::time::Instant;

use crate::LockManager;
use crate::clock::Deadline;
use crate::mutants::{Mutant, Seeded};
use crate::share::Share;
use crate::store::{Answer, Ask, Cause, Events as _, Pushed, Store as _, exactly_one};
use crate::timing::CLAIM;
use crate::token::Token;

/// Two processes. The first was granted a lease of this share, for a task that is gone.
async fn granted_to_nobody(share: Option<Share>) -> (LockManager, LockManager, Token) {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    let (token, give_up) = (locks.core().next_token(false, share), Deadline::after(CLAIM));
    let (key, token_asked) = ("p:k".into(), token.clone());
    let ask = Ask {
        key,
        token: token_asked,
        share,
        claim: CLAIM,
        wait: false,
        replaces: false,
        fences: 0,
        give_up,
        cause: Cause::Task,
    };
    let answer = exactly_one(locks.core().store().ask(&[ask], give_up).await).unwrap();
    assert!(matches!(answer, Answer::Granted(_)));
    assert!(beside.lock("p", "k").try_acquire().await.unwrap().is_none());
    (locks, beside, token)
}

fn shares() -> [Option<Share>; 3] {
    [None, Some(Share::READ), Share::permit(3)]
}

#[tokio::test(start_paused = true)]
async fn a_stray_grant_is_released_as_the_lease_that_it_is() {
    for bug in [None, Some(Mutant::StrayShareIsExclusive), Some(Mutant::StrayGrantKept)] {
        for share in shares() {
            let _seeded = Seeded::begin(bug);
            let (locks, beside, token) = granted_to_nobody(share).await;
            let (claim, store_micros) = (Duration::from_secs(2), 0);
            let (node, contended, unconfirmed, partial) = (None, false, false, false);
            locks.core().on_grant("p:k", &Pushed { token, claim, store_micros, contended, node, unconfirmed, partial });
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
async fn a_lease_that_nobody_uses_and_that_was_taken_by_force_is_released_at_once() {
    for bug in [None, Some(Mutant::StrayShareIsExclusive)] {
        for share in shares() {
            let _seeded = Seeded::begin(bug);
            let (_locks, beside, _token) = granted_to_nobody(share).await;
            let begin = Instant::now();
            assert!(beside.force_release("p", "k").await.unwrap());
            drop(beside.lock("p", "k").timeout(CLAIM * 2).acquire().await.unwrap());
            // Otherwise the mark ends by itself, after a claim.
            let is_at_once = begin.elapsed() < CLAIM / 2;
            assert_eq!(is_at_once, bug.is_none() || share.is_none(), "{share:?}, {bug:?}");
        }
    }
}
