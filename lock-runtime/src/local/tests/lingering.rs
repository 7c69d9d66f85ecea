use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};

use super::round;
use crate::clock::Moment;
use crate::lock::{Effects, Fences, Trigger, User};
use crate::mutants::{Mutant, Seeded};
use crate::store::Events as _;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const LINGER: Duration = Duration::from_millis(500);

fn request(locks: &LockManager, key: &str) -> LockRequest {
    locks.lock("p", key).linger(LINGER)
}

async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    request(locks, key).acquire().await.unwrap()
}

/// Holds the lock for a moment, and lets it linger.
async fn linger(locks: &LockManager, key: &str) {
    hold(locks, key).await.release().await.unwrap();
}

fn token(locks: &LockManager, key: &str) -> Option<String> {
    let (table, name) = (locks.core().table(), format!("p:{key}"));
    let mut slots = table.of_key(&name).into_iter();
    slots.find_map(|slot| slot.state.lock().lock.leases().next().map(|lease| lease.token.as_str().to_owned()))
}

#[tokio::test(start_paused = true)]
async fn the_next_hold_has_the_same_lease() {
    let locks = LockManager::in_memory();
    linger(&locks, "k").await;
    let first = token(&locks, "k");
    assert!(first.is_some());
    assert_eq!((locks.stats().lingering, locks.stats().held), (1, 0));
    let guard = hold(&locks, "k").await;
    assert_eq!(token(&locks, "k"), first);
    assert_eq!((locks.stats().lingering, locks.stats().held), (0, 1));
    drop(guard);
    assert_eq!((token(&locks, "k"), locks.stats().lingering), (first, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_when_its_time_is_over_and_all_is_forgotten() {
    let locks = LockManager::in_memory();
    let other = LockManager::builder().in_memory_with(&locks).unwrap();
    linger(&locks, "k").await;
    sleep(LINGER * 99 / 100).await;
    assert!(other.is_locked("p", "k").await.unwrap());
    sleep(LINGER / 50).await;
    assert!(!other.is_locked("p", "k").await.unwrap());
    assert!(locks.core().table().all().is_empty() && locks.core().lingering.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_used_again_and_again_is_kept_and_lengthened_once_a_second() {
    let locks = LockManager::in_memory();
    linger(&locks, "k").await;
    let (before, start) = (locks.stats().renewals, Instant::now());
    let mut tokens = BTreeSet::new();
    while start.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(7)).await;
        linger(&locks, "k").await;
        tokens.extend(token(&locks, "k"));
    }
    // A slow machine looks like one that was suspended, which ends all lingering.
    assert!(tokens.len() <= 3 && locks.stats().acquired > 1000, "{tokens:?}");
    let renewals = locks.stats().renewals - before;
    assert!((13..=20).contains(&renewals), "{renewals}");
}

#[tokio::test(start_paused = true)]
async fn holds_that_are_confirmed_share_a_confirmation() {
    let locks = LockManager::in_memory();
    let (before, start) = (locks.stats().renewals, Instant::now());
    while start.elapsed() < Duration::from_secs(30) {
        let guard = hold(&locks, "k").await;
        sleep(Duration::from_millis(50)).await;
        guard.release().await.unwrap();
    }
    // A lease of 30 s is renewed after 10 s.
    let renewals = locks.stats().renewals - before;
    assert!((3..=8).contains(&renewals), "{renewals}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_not_renewed_has_its_whole_time_on_a_lease_that_lingered() {
    let locks = LockManager::in_memory();
    let long = hold(&locks, "k").await;
    sleep(Duration::from_secs(1)).await;
    long.release().await.unwrap();
    sleep(LINGER / 2).await;
    let guard = request(&locks, "k").renew(false).acquire().await.unwrap();
    sleep(Duration::from_secs(29)).await;
    assert!(guard.is_valid());
    sleep(Duration::from_secs(2)).await;
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lingers_yields_to_a_waiter_and_not_to_a_single_try() {
    let locks = LockManager::in_memory();
    let other = LockManager::builder().in_memory_with(&locks).unwrap();
    let start = Instant::now();
    linger(&locks, "k").await;
    other.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    linger(&locks, "l").await;
    assert_eq!(locks.stats().lingering, 1);
    assert!(other.lock("p", "l").try_acquire().await.unwrap().is_none());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(locks.stats().lingering, 1);
}

#[tokio::test(start_paused = true)]
async fn no_lease_lingers_while_another_process_waits() {
    let locks = LockManager::in_memory();
    let other = LockManager::builder().in_memory_with(&locks).unwrap();
    let guard = hold(&locks, "k").await;
    let waiting = other.lock("p", "k").acquire();
    let (waited, ()) = tokio::join!(waiting, async {
        sleep(Duration::from_millis(10)).await;
        guard.release().await.unwrap();
        assert_eq!(locks.stats().lingering, 0);
    });
    drop(waited.unwrap());
}

#[tokio::test(start_paused = true)]
async fn where_two_processes_take_turns_few_leases_linger() {
    let locks = LockManager::in_memory();
    let other = LockManager::builder().in_memory_with(&locks).unwrap();
    let mut lingered = 0;
    for _ in 0..160 {
        for by in [&locks, &other] {
            linger(by, "k").await;
            lingered += by.stats().lingering;
        }
    }
    assert!((16..=30).contains(&lingered), "{lingered}");
    linger(&locks, "alone").await;
    assert_eq!(locks.stats().lingering, 1);
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_lease_goes_first() {
    let locks = LockManager::builder().max_lingering(2).in_memory();
    for key in ["a", "b", "a", "c"] {
        linger(&locks, key).await;
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(["a", "b", "c"].map(|key| token(&locks, key).is_some()), [true, false, true]);
    linger(&locks, "d").await;
    assert_eq!(["a", "c", "d"].map(|key| token(&locks, key).is_some()), [false, true, true]);
    let none = LockManager::builder().max_lingering(0).in_memory();
    linger(&none, "a").await;
    assert_eq!(token(&none, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn what_lingers_is_released_by_a_shutdown_and_when_the_manager_is_dropped() {
    let other = LockManager::in_memory();
    for is_shut_down in [true, false] {
        let locks = LockManager::builder().in_memory_with(&other).unwrap();
        let (held, start) = (hold(&locks, "held").await, Instant::now());
        for key in ["a", "b", "c"] {
            linger(&locks, key).await;
        }
        if is_shut_down {
            held.release().await.unwrap();
            locks.shutdown().await;
        } else {
            drop(locks);
            // A guard outlives its manager, and its lease does not linger then.
            held.release().await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for key in ["a", "b", "c", "held"] {
            assert!(!other.is_locked("p", key).await.unwrap(), "{key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fencing_tokens_grow_over_leases_that_linger() {
    let locks = LockManager::in_memory();
    let other = LockManager::builder().in_memory_with(&locks).unwrap();
    let mut last = None;
    for round in 0..200 {
        let by = if round % 70 == 69 { &other } else { &locks };
        let guard = request(by, "k").fenced(true).acquire().await.unwrap();
        assert!(guard.fencing_token() > last, "{round}");
        last = guard.fencing_token();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lingers_is_taken_by_force_at_once_and_is_not_held() {
    let locks = LockManager::in_memory();
    let other = LockManager::builder().in_memory_with(&locks).unwrap();
    linger(&locks, "k").await;
    assert!(!locks.inspect("p", "k").await.unwrap().unwrap().is_held_here);
    let start = Instant::now();
    assert!(other.force_release("p", "k").await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(!other.is_locked("p", "k").await.unwrap());
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_store_may_have_forgotten_lingers_no_more() {
    let locks = LockManager::in_memory();
    linger(&locks, "k").await;
    let slot = locks.core().table().get("p:k").unwrap();
    let mut actions = Vec::new();
    slot.look(Trigger::Verify, &round(), &mut actions);
    assert!(actions.is_empty() && !locks.is_locked("p", "k").await.unwrap(), "{actions:?}");
    assert!(locks.core().table().get("p:k").is_none());
    linger(&locks, "l").await;
    locks.core().events().upgrade().unwrap().on_interruption(&|_| true);
    assert!(locks.core().table().get("p:l").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_linger_time_that_is_too_long_is_refused() {
    let locks = LockManager::in_memory();
    let long = Duration::from_millis(2001);
    let refused = locks.lock("p", "k").linger(long).acquire().await;
    assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "linger", .. })), "{refused:?}");
    let refused = LockManager::builder().url("memory://").linger(long).connect().await;
    assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "linger", .. })), "{refused:?}");
    let locks = LockManager::builder().linger(LINGER).in_memory();
    locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.stats().lingering, 1, "the manager's time");
    locks.lock("p", "l").linger(Duration::ZERO).acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.stats().lingering, 1, "the request's time");
}

#[tokio::test(start_paused = true)]
async fn readers_use_a_lease_again_that_lingered_and_share_it() {
    let locks = LockManager::in_memory();
    let read = || request(&locks, "k").read();
    read().acquire().await.unwrap().release().await.unwrap();
    let first = token(&locks, "k");
    assert!(first.is_some() && locks.stats().lingering == 1);
    assert!(!locks.inspect("p", "k").await.unwrap().unwrap().is_held_here);
    let (one, two) = (read().acquire().await.unwrap(), read().acquire().await.unwrap());
    assert_eq!((token(&locks, "k"), locks.stats().held, locks.stats().lingering), (first.clone(), 2, 0));
    one.release().await.unwrap();
    assert_eq!(locks.stats().lingering, 0);
    drop(two);
    assert_eq!((token(&locks, "k"), locks.stats().lingering), (first, 1));
    // The longest linger time applies.
    let short = read().acquire().await.unwrap();
    read().linger(LINGER * 3).acquire().await.unwrap().release().await.unwrap();
    short.release().await.unwrap();
    sleep(LINGER * 2).await;
    assert_eq!(locks.stats().lingering, 1);
    sleep(LINGER * 2).await;
    assert!(locks.core().table().all().is_empty() && locks.core().lingering.is_empty());
    assert!(!locks.is_locked("p", "k").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn readers_that_keep_a_lease_yield_to_others_and_readers_elsewhere_share_it() {
    let start = Instant::now();
    for key in ["read", "alone", "permit", "force"] {
        let locks = LockManager::in_memory();
        let other = LockManager::builder().in_memory_with(&locks).unwrap();
        request(&locks, key).read().acquire().await.unwrap().release().await.unwrap();
        assert_eq!(locks.stats().lingering, 1, "{key}");
        let wanted = other.lock("p", key);
        let granted = match key {
            "read" => wanted.read().acquire().await,
            "alone" => wanted.acquire().await,
            "permit" => wanted.permits(1).acquire().await,
            _ => {
                assert!(other.force_release("p", key).await.unwrap());
                wanted.timeout(Duration::ZERO).acquire().await
            }
        };
        granted.unwrap().release().await.unwrap();
        assert_eq!(locks.stats().lingering, u64::from(key == "read"), "{key}");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// The store notifies only the other processes of shared leases.
#[tokio::test(start_paused = true)]
async fn readers_that_keep_a_lease_yield_to_tasks_of_their_process() {
    for bug in [None, Some(Mutant::LingersBesideOthers)] {
        let _seeded = Seeded::begin(bug);
        let mut waited = Vec::new();
        for (wanted, begins_before) in [(0, false), (0, true), (1, false), (1, true), (2, false), (3, false)] {
            let locks = LockManager::in_memory();
            let plain = || locks.lock("p", "k");
            let wanted = || match wanted {
                0 => plain(),
                1 => plain().permits(1),
                2 => plain().timeout(Duration::ZERO),
                _ => plain().permits(1).timeout(Duration::ZERO),
            };
            let start = Instant::now();
            let reader = request(&locks, "k").read().acquire().await.unwrap();
            if begins_before {
                let waiting = tokio::spawn(wanted().acquire());
                tokio::task::yield_now().await;
                drop(reader);
                waited.push(waiting.await.unwrap().map(|_| start.elapsed()));
            } else {
                reader.release().await.unwrap();
                waited.push(wanted().acquire().await.map(|_| start.elapsed()));
            }
        }
        let at_once = waited.iter().filter(|waited| matches!(waited, Ok(Duration::ZERO))).count();
        // The store reports that a task wants the lock alone.
        assert_eq!(at_once, if bug.is_some() { 2 } else { waited.len() }, "{waited:?}");
    }
}

/// The task that wants a permit was not noticed when the readers' lease began to linger. The store's refusal reveals it.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_refused_a_permit_makes_readers_of_its_process_yield() {
    let (locks, start) = (LockManager::in_memory(), Instant::now());
    let reader = request(&locks, "k").read().acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("p", "k").permits(1).acquire());
    tokio::task::yield_now().await;
    let slots = locks.core().table().of_key("p:k");
    let [readers, permit] = slots.as_slice() else { panic!("{slots:?}") };
    let (id, member) = reader.first.handle().ids();
    readers.state.lock().lock.any_lease().contention = None;
    // The thread that ends the hold has not yet checked for tasks that wait in another mode.
    let user = User { id, member, has_body: false, waits: true };
    readers.state.lock().lock.end(user, readers.env(), Moment::now(), &mut Effects::default());
    std::mem::forget(reader);
    assert_eq!(locks.stats().lingering, 1);
    permit.on_interruption();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// The process has a permit, and a grant for its reader is on its way and unread. A message that another process waits then concerns
/// both.
#[tokio::test(start_paused = true)]
async fn a_reader_whose_grant_is_on_its_way_is_notified_of_a_waiter_although_a_permit_is_held_here() {
    for bug in [None, Some(Mutant::UnreadGrantNotTold)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let other = LockManager::builder().in_memory_with(&locks).unwrap();
        let permit = locks.lock("p", "k").permits(2).acquire().await.unwrap();
        let in_front = tokio::spawn(other.lock("p", "k").acquire());
        tokio::task::yield_now().await;
        let reader = tokio::spawn(request(&locks, "k").read().acquire());
        tokio::task::yield_now().await;
        locks.core().on_contention("p:k");
        in_front.abort();
        reader.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(locks.stats().lingering, u64::from(bug.is_some()));
        drop(permit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_no_other_hold_could_use_does_not_linger() {
    let locks = LockManager::builder().linger(LINGER).in_memory();
    let permit = || locks.lock("p", "k").permits(2);
    let brief = || locks.lock("p", "k").read().renew(false);
    permit().acquire().await.unwrap().release().await.unwrap();
    brief().acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.stats().lingering, 0, "the manager's linger time is for others");
    for own in [permit(), brief()] {
        let told = own.linger(LINGER).acquire().await.unwrap_err();
        assert!(matches!(told, LockError::InvalidSetting { setting: "linger", .. }), "{told:?}");
    }
    locks.lock("p", "k").read().acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.stats().lingering, 1);
}

/// Rule 23: the lease ends with the rest. After a hold longer than its `at_least` it lingers.
#[tokio::test(start_paused = true)]
async fn a_lease_that_has_rested_does_not_linger_and_one_that_need_not_rest_does() {
    let locks = LockManager::in_memory();
    for (expire, at_least) in [(200, 500), (500, 200), (30_000, 50_000)] {
        let [expire, at_least] = [expire, at_least].map(Duration::from_millis);
        for (held, lingering) in [(Duration::ZERO, 0), (at_least, 1)] {
            let request = locks.lock("p", "k").expire(expire).at_least(at_least).linger(LINGER);
            request.run(sleep(held)).await.unwrap();
            sleep(at_least.saturating_sub(held) + LINGER / 2).await;
            assert_eq!(locks.stats().lingering, lingering, "{expire:?} {at_least:?} {held:?}");
            assert_eq!(locks.is_locked("p", "k").await.unwrap(), lingering > 0);
            sleep(LINGER).await;
            assert!(!locks.is_locked("p", "k").await.unwrap());
        }
    }
}

/// Rule 8: a reader gave up after its fencing token was drawn, and the next reader on the same lease wants no token.
#[tokio::test(start_paused = true)]
async fn a_fencing_token_that_no_reader_took_is_not_used_after_other_owners_drew_theirs() {
    for bug in [None, Some(Mutant::SharedFencesKept)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let other = LockManager::builder().in_memory_with(&locks).unwrap();
        let reader = |locks: &LockManager, fenced| request(locks, "k").read().fenced(fenced).acquire();
        reader(&locks, false).await.unwrap().release().await.unwrap();
        let slot = locks.core().table().all().pop().unwrap();
        slot.state.lock().lock.any_lease().fences = Fences::new(1, 1);
        reader(&locks, false).await.unwrap().release().await.unwrap();
        let theirs = [reader(&other, true).await.unwrap(), reader(&other, true).await.unwrap()];
        let ours = reader(&locks, true).await.unwrap();
        let is_larger = theirs.iter().all(|theirs| ours.fencing_token() > theirs.fencing_token());
        assert_eq!(is_larger, bug.is_none(), "{ours:?} {theirs:?}");
    }
}

/// A request that fails releases at once what it held.
#[tokio::test(start_paused = true)]
async fn a_request_for_several_keys_that_fails_lets_none_of_them_linger() {
    for (bug, is_kept) in [(None, false), (Some(Mutant::PartLingers), true)] {
        let _seeded = Seeded::begin(bug);
        for is_reader in [false, true] {
            let locks = LockManager::in_memory();
            let others = LockManager::builder().in_memory_with(&locks).unwrap();
            let set = |timeout| {
                let set = locks.lock_all("p", ["a", "b"]).linger(LINGER).timeout(timeout);
                if is_reader { set.read() } else { set }
            };
            let held = others.lock("p", "b").acquire().await.unwrap();
            for timeout in [Duration::ZERO, LINGER / 5] {
                assert!(set(timeout).acquire().await.is_err());
                assert_eq!(others.is_locked("p", "a").await.unwrap(), is_kept, "{bug:?} {is_reader} {timeout:?}");
                sleep(LINGER * 2).await;
            }
            held.release().await.unwrap();
            set(LINGER).acquire().await.unwrap().release().await.unwrap();
            assert_eq!(locks.stats().lingering, 2, "all of them were held");
        }
    }
}
