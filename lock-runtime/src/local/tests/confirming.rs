//! Tests: the keeper's confirmations, and the holds that they are for.

use std::time::Duration;

use tokio::time::advance;

use super::round;
use crate::LockManager;
use crate::clock::{Deadline, Moment};
use crate::lock::{Action, Trigger};
use crate::mutants::{Mutant, Seeded};
use crate::protocol::Renewed;

/// The keeper decides on a renewal for one hold. Before the renewal is sent, the lease is handed over to a hold with a
/// longer lease.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_decided_on_for_one_hold_does_not_confirm_the_longer_lease_of_the_next() {
    for renew in [true, false] {
        let locks = LockManager::in_memory();
        let (short, long) = (Duration::from_secs(4), Duration::from_mins(1));
        let request = |expire| locks.lock("p", "k").expire(expire).renew(renew);
        let first = request(short).acquire().await.unwrap();
        let slot = locks.core().table().get(first.key()).unwrap();
        let next = tokio::spawn(request(long).acquire());
        tokio::task::yield_now().await;
        let Action::Renew(renewal) = slot.next_action(Trigger::Verify, &round()) else { panic!("it is to be renewed") };
        first.release().await.unwrap();
        let next = next.await.unwrap().unwrap();
        let sent = Moment::now();
        slot.on_renewal(&renewal, sent, Some(Renewed::Until(Deadline::new(sent, short))));
        advance(Duration::from_millis(6)).await;
        let action = slot.next_action(Trigger::Tick, &round());
        let Action::Renew(renewal) = &action else { panic!("{renew}: {action:?}") };
        assert!(renewal.lease > long / 2, "{renew}: {renewal:?}");
        drop(next);
    }
}

/// A slow renewal finds the lease gone. By then a repeated ask was granted the token once more, and the lease was confirmed.
#[tokio::test(start_paused = true)]
async fn what_an_older_renewal_says_of_a_lease_that_was_confirmed_meanwhile_is_verified() {
    for (refusal, bug, is_lost) in [
        (Renewed::NotOwned, None, false),
        (Renewed::Partial, None, false),
        (Renewed::NotOwned, Some(Mutant::LateRefusalCounts), true),
    ] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let guard = locks.lock("p", "k").acquire().await.unwrap();
        let slot = locks.core().table().get(guard.key()).unwrap();
        let Action::Renew(renewal) = slot.next_action(Trigger::Verify, &round()) else { panic!("it is to be renewed") };
        let slow = Moment::now();
        advance(Duration::from_millis(6)).await;
        let later = Moment::now();
        slot.on_renewal(&renewal, later, Some(Renewed::Until(Deadline::new(later, renewal.lease))));
        // What the user asks for, an extension or a fencing token, looks at the same.
        assert_eq!(guard.handle().is_confirmed_after(slow), !is_lost);
        assert!(!guard.handle().is_confirmed_after(Moment::now()));
        let action = slot.on_renewal(&renewal, slow, Some(refusal));
        assert_eq!(matches!(action, Action::Lost(..)), is_lost, "{action:?}");
        advance(Duration::from_millis(6)).await;
        let action = slot.on_renewal(&renewal, Moment::now(), Some(Renewed::NotOwned));
        assert!(matches!(action, Action::Lost(..)), "what is asked later counts: {action:?}");
        drop(guard);
    }
}
