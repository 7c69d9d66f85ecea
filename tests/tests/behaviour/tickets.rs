//! A hold that is given away as a ticket, and adopted: [`LockGuard::into_ticket`](lock_runtime::LockGuard::into_ticket).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use lock_runtime::{LockError, LockGuard, LockManager, LockMode, LockTicket, OnBusy};
use tests::over_every_store;
use tests::patience::{NOISE, Stopwatch, at_rest};
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{Dropped, LONG, SHORT, is_free, wait_until_free};

over_every_store![
    a_ticket_is_adopted_by_another_process_and_nobody_gets_the_lock_in_between,
    a_ticket_is_adopted_once,
    the_giver_owns_nothing_any_more,
    one_of_several_concurrent_adopters_succeeds,
    a_ticket_is_adopted_in_the_process_that_gave_it,
    waiters_in_the_process_of_the_adopter_keep_waiting,
    an_adopted_hold_is_an_ordinary_one,
    an_adopter_draws_a_larger_fencing_token,
    a_lock_that_nobody_adopts_is_free_when_the_time_is_over,
    a_ticket_is_given_back,
    a_ticket_outlives_its_manager,
    a_lost_hold_has_no_ticket,
    a_lock_that_waits_for_its_adopter_is_taken_by_force,
    a_look_shows_that_a_lock_waits_for_its_adopter,
    a_permit_is_given_away,
    readers_and_several_keys_are_not_given_away,
    a_dropped_into_ticket_or_adopt_leaves_nothing,
    an_adopter_in_another_namespace_gets_the_same_lock,
    a_mistaken_ticket_is_refused,
    a_body_runs_under_an_adopted_hold,
    a_body_under_an_adopted_hold_is_dropped_when_the_hold_is_lost,
    an_adopted_hold_that_is_replaced_does_not_count_as_lost,
];

/// Longer than a test takes.
const KEPT: Duration = Duration::from_secs(30);

/// Whether the store has no tickets. If so, checks that it refuses without sending a command.
async fn refuses_tickets(world: &World) -> bool {
    if !world.is_quorum() {
        return false;
    }
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let commands = || manager.stats().commands;
    at_rest("the hold is confirmed", LONG, commands).await;
    let refused = guard.into_ticket(KEPT).await.unwrap_err();
    assert!(matches!(refused, LockError::InvalidSetting { setting: "ticket", .. }), "{refused:?}");
    assert!(refused.to_string().contains("a quorum's lock can't wait for an adopter"), "{refused}");
    wait_until_free(&manager, "k").await;
    let text = format!("lock-ticket {:032x}.1@h|ticket p:k", 7);
    let before = at_rest("nothing is under way", LONG, commands).await;
    let ticket: LockTicket = text.parse().unwrap();
    for refused in [manager.adopt(ticket.clone()).await.map(drop), manager.release_ticket(ticket).await] {
        assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "ticket", .. })), "{refused:?}");
    }
    assert_eq!(commands(), before);
    true
}

async fn hold(manager: &LockManager) -> LockGuard {
    manager.lock("p", "k").timeout(LONG).acquire().await.unwrap()
}

async fn give(manager: &LockManager) -> LockTicket {
    hold(manager).await.into_ticket(KEPT).await.unwrap()
}

fn assert_lost<T>(outcome: Result<T, LockError>) {
    let error = outcome.map(drop).unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, forced: false, .. }), "{error:?}");
}

/// The ticket after a round trip as text, as through a message queue.
fn sent(ticket: &LockTicket) -> LockTicket {
    ticket.to_string().parse().unwrap()
}

async fn a_ticket_is_adopted_by_another_process_and_nobody_gets_the_lock_in_between(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker, other) = (world.manager().await, world.manager().await, world.manager().await);
    let guard = hold(&giver).await;
    let mut waits = pin!(other.lock("p", "k").timeout(LONG).acquire());
    let mut waits_here = pin!(giver.lock("p", "k").timeout(LONG).acquire());
    assert!(poll!(&mut waits).is_pending() && poll!(&mut waits_here).is_pending());
    let ticket = guard.into_ticket(KEPT).await.unwrap();
    let both = async {
        tokio::select! { _ = &mut waits => true, _ = &mut waits_here => true, () = sleep(SHORT) => false }
    };
    assert!(!both.await, "somebody else got the lock");
    assert!(!is_free(&giver, "k").await);
    let adopted = worker.adopt(sent(&ticket)).await.unwrap();
    assert_eq!((adopted.key(), adopted.is_valid()), ("p:k", true));
    assert!(adopted.remaining() > Duration::ZERO);
    assert!(poll!(&mut waits).is_pending() && poll!(&mut waits_here).is_pending());
    let start = Instant::now();
    adopted.release().await.unwrap();
    let next = async {
        tokio::select! { guard = &mut waits => guard, guard = &mut waits_here => guard }
    };
    next.await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < NOISE, "the release did not pass the lock on: {:?}", start.elapsed());
}

async fn a_ticket_is_adopted_once(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    let adopted = worker.adopt(sent(&ticket)).await.unwrap();
    assert_lost(worker.adopt(sent(&ticket)).await);
    assert_lost(giver.adopt(sent(&ticket)).await);
    assert_lost(giver.release_ticket(sent(&ticket)).await);
    assert!(adopted.is_valid() && !is_free(&giver, "k").await);
    adopted.extend(LONG).await.unwrap();
    adopted.release().await.unwrap();
    assert_lost(worker.adopt(ticket).await);
    wait_until_free(&giver, "k").await;
    wait_until_free(&worker, "k").await;
}

async fn the_giver_owns_nothing_any_more(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    assert_eq!(giver.stats().held, 0);
    let busy = giver.lock("p", "k").timeout(SHORT).acquire().await.unwrap_err();
    assert!(matches!(busy, LockError::Timeout { held_here: false, .. }), "{busy:?}");
    giver.shutdown().await;
    let adopted = worker.adopt(ticket).await.unwrap();
    assert!(!is_free(&worker, "k").await);
    adopted.extend(LONG).await.unwrap();
    adopted.release().await.unwrap();
}

async fn one_of_several_concurrent_adopters_succeeds(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    let adopt = |manager: &LockManager| manager.adopt(ticket.clone());
    let all = [adopt(&worker), adopt(&giver), adopt(&worker), adopt(&giver)];
    let mut outcomes = futures_util::future::join_all(all).await;
    let adopted = outcomes.iter().position(Result::is_ok).unwrap();
    let guard = outcomes.swap_remove(adopted).unwrap();
    outcomes.into_iter().for_each(assert_lost);
    assert!(guard.is_valid());
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    assert!(is_free(&giver, "k").await);
}

async fn a_ticket_is_adopted_in_the_process_that_gave_it(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, other) = (world.manager().await, world.manager().await);
    for _ in 0..3 {
        let ticket = give(&giver).await;
        let guard = giver.adopt(ticket).await.unwrap();
        assert_eq!(giver.stats().held, 1);
        let ticket = guard.into_ticket(KEPT).await.unwrap();
        assert!(!is_free(&other, "k").await);
        giver.adopt(ticket).await.unwrap().release().await.unwrap();
    }
    assert!(is_free(&other, "k").await);
}

async fn waiters_in_the_process_of_the_adopter_keep_waiting(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    let request = || worker.lock("p", "k").timeout(LONG);
    let (mut first, mut second) = (pin!(request().acquire()), pin!(request().acquire()));
    let both = async {
        tokio::select! { biased; _ = &mut first => true, _ = &mut second => true, () = sleep(SHORT) => false }
    };
    assert!(!both.await);
    let adopting = worker.adopt(ticket);
    let adopted = tokio::select! {
        biased;
        _ = &mut first => panic!("it got the lock while the adopter holds it"),
        _ = &mut second => panic!("it got the lock while the adopter holds it"),
        adopted = adopting => adopted.unwrap(),
    };
    let both = async {
        tokio::select! { _ = &mut first => true, _ = &mut second => true, () = sleep(SHORT) => false }
    };
    assert!(!both.await && adopted.is_valid());
    let start = Instant::now();
    adopted.release().await.unwrap();
    let first = tokio::select! { guard = &mut first => guard.unwrap(), _ = &mut second => panic!("it overtook the first waiter") };
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
}

async fn an_adopted_hold_is_an_ordinary_one(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = hold(&giver).await.into_ticket(Duration::from_secs(1)).await.unwrap();
    let renewed = worker.adopt_with(ticket, |request| request.expire(SHORT)).await.unwrap();
    sleep(SHORT * 5).await;
    assert!(renewed.is_valid() && !is_free(&giver, "k").await, "it was not renewed, and ended with the ticket");
    let ticket = renewed.into_ticket(KEPT).await.unwrap();
    let left = worker.adopt_with(ticket, |request| request.expire(SHORT).renew(false)).await.unwrap();
    left.lost().await;
    assert!(left.release().await.unwrap_err().is_lost());
    wait_until_free(&giver, "k").await;
    drop(worker.adopt(give(&giver).await).await.unwrap());
    wait_until_free(&giver, "k").await;
}

async fn an_adopter_draws_a_larger_fencing_token(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let guard = giver.lock("p", "k").fenced(true).timeout(LONG).acquire().await.unwrap();
    let mut last = guard.fencing_token().unwrap();
    let mut ticket = guard.into_ticket(KEPT).await.unwrap();
    for manager in [&worker, &giver, &worker] {
        let guard = manager.adopt_with(ticket, |request| request.fenced(true)).await.unwrap();
        let token = guard.fencing_token().unwrap();
        assert!(token > last, "{token} {last}");
        last = token;
        ticket = guard.into_ticket(KEPT).await.unwrap();
    }
    assert_eq!(worker.adopt(ticket).await.unwrap().fencing_token(), None);
}

async fn a_lock_that_nobody_adopts_is_free_when_the_time_is_over(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let kept = Duration::from_secs(1);
    let guard = giver.lock("p", "k").expire(Duration::from_millis(50)).acquire().await.unwrap();
    let before = Stopwatch::start();
    let ticket = guard.into_ticket(kept).await.unwrap();
    let given = Instant::now();
    let next = worker.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(before.counted() >= kept, "{:?}", before.elapsed());
    assert!(given.elapsed() < kept + Duration::from_secs(1) + NOISE, "{:?}", given.elapsed());
    assert_lost(worker.adopt(ticket).await);
    assert!(next.is_valid());
    next.release().await.unwrap();
}

async fn a_ticket_is_given_back(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    worker.release_ticket(sent(&ticket)).await.unwrap();
    assert!(is_free(&giver, "k").await);
    assert_lost(worker.adopt(sent(&ticket)).await);
    assert_lost(worker.release_ticket(ticket).await);
    let ticket = give(&giver).await;
    let waiting = worker.lock("p", "k").timeout(LONG).acquire();
    let release = async {
        sleep(SHORT).await;
        let start = Instant::now();
        giver.release_ticket(ticket).await.unwrap();
        start
    };
    let (guard, start) = tokio::join!(waiting, release);
    guard.unwrap().release().await.unwrap();
    assert!(start.elapsed() < NOISE, "it was not passed on: {:?}", start.elapsed());
}

async fn a_ticket_outlives_its_manager(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    giver.shutdown().await;
    drop(giver);
    worker.adopt(ticket).await.unwrap().release().await.unwrap();
    assert!(is_free(&worker, "k").await);
}

async fn a_lost_hold_has_no_ticket(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let guard = giver.lock("p", "k").expire(Duration::from_millis(50)).renew(false).acquire().await.unwrap();
    guard.lost().await;
    assert_lost(guard.into_ticket(KEPT).await);
    wait_until_free(&worker, "k").await;
    let guard = hold(&giver).await;
    assert!(worker.force_release("p", "k").await.unwrap());
    let error = guard.into_ticket(KEPT).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error:?}");
    wait_until_free(&worker, "k").await;
}

async fn a_lock_that_waits_for_its_adopter_is_taken_by_force(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    let start = Instant::now();
    assert!(worker.force_release("p", "k").await.unwrap());
    assert!(is_free(&worker, "k").await);
    assert!(start.elapsed() < NOISE, "there was no holder to wait for: {:?}", start.elapsed());
    assert_lost(worker.adopt(ticket).await);
    let guard = worker.adopt(give(&giver).await).await.unwrap();
    assert!(giver.force_release("p", "k").await.unwrap());
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { forced: true, .. }), "{error:?}");
}

async fn a_look_shows_that_a_lock_waits_for_its_adopter(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let giver = world.manager_with(LockManager::builder().label("api 1")).await;
    let worker = world.manager_with(LockManager::builder().label("worker|2")).await;
    let ticket = give(&giver).await;
    for manager in [&giver, &worker] {
        let seen = manager.inspect("p", "k").await.unwrap().unwrap();
        assert!(seen.awaits_adopter && !seen.is_held_here && !seen.rests && !seen.is_forced, "{seen:?}");
        assert_eq!((seen.holder.as_deref(), seen.mode), (Some("api 1"), LockMode::Exclusive));
        assert!(seen.remaining <= KEPT && seen.remaining + LONG > KEPT, "{seen:?}");
    }
    let busy = worker.lock("p", "k").timeout(SHORT).acquire().await.unwrap_err();
    assert!(matches!(&busy, LockError::Timeout { holder: Some(label), .. } if label == "api 1"), "{busy:?}");
    assert!(busy.retry_after().is_some_and(|left| left <= KEPT && left + LONG > KEPT), "{busy:?}");
    let guard = worker.adopt(ticket).await.unwrap();
    let seen = worker.inspect("p", "k").await.unwrap().unwrap();
    assert!(!seen.awaits_adopter && seen.is_held_here, "{seen:?}");
    assert_eq!(seen.holder.as_deref(), Some("worker|2"));
    guard.release().await.unwrap();
}

async fn a_permit_is_given_away(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let permit = |manager: &LockManager| manager.lock("p", "k").permits(2).timeout(LONG);
    let given = permit(&giver).acquire().await.unwrap();
    let other = permit(&worker).acquire().await.unwrap();
    let ticket = given.into_ticket(KEPT).await.unwrap();
    let is_full = async || permit(&giver).try_acquire().await.unwrap().is_none();
    assert!(is_full().await, "the ticket does not count as a permit");
    let seen = worker.inspect("p", "k").await.unwrap().unwrap();
    assert!(!seen.awaits_adopter && seen.holders.len() == 2, "the other permit is held: {seen:?}");
    let adopted = worker.adopt(sent(&ticket)).await.unwrap();
    assert_lost(giver.adopt(sent(&ticket)).await);
    assert!(is_full().await && adopted.is_valid() && worker.stats().held == 2);
    let wrong = worker.adopt_with(ticket, |request| request.permits(3)).await.unwrap_err();
    assert!(matches!(wrong, LockError::InvalidSetting { setting: "ticket", .. }), "{wrong:?}");
    other.release().await.unwrap();
    let third = permit(&giver).acquire().await.unwrap();
    assert!(is_full().await);
    adopted.release().await.unwrap();
    let ticket = third.into_ticket(KEPT).await.unwrap();
    let seen = worker.inspect("p", "k").await.unwrap().unwrap();
    assert!(seen.awaits_adopter && matches!(seen.mode, LockMode::Permits { of: 2, .. }), "{seen:?}");
    let one = permit(&worker).acquire().await.unwrap();
    worker.release_ticket(ticket).await.unwrap();
    one.release().await.unwrap();
    assert!(is_free(&giver, "k").await);
    let ticket = permit(&giver).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
    assert!(worker.force_release("p", "k").await.unwrap());
    assert!(is_free(&giver, "k").await);
    assert_lost(worker.adopt(ticket).await);
}

async fn readers_and_several_keys_are_not_given_away(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let manager = world.manager().await;
    let refused = |outcome: Result<LockTicket, LockError>| {
        let error = outcome.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { setting: "ticket", .. }), "{error:?}");
    };
    refused(manager.lock("p", "k").read().acquire().await.unwrap().into_ticket(KEPT).await);
    refused(manager.lock_all("p", ["k", "l"]).acquire().await.unwrap().into_ticket(KEPT).await);
    for kept in [Duration::ZERO, Duration::from_millis(1), Duration::from_hours(400 * 24)] {
        refused(hold(&manager).await.into_ticket(kept).await);
    }
    wait_until_free(&manager, "k").await;
    wait_until_free(&manager, "l").await;
}

async fn a_dropped_into_ticket_or_adopt_leaves_nothing(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    for polls in 0..3 {
        let mut giving = Box::pin(hold(&giver).await.into_ticket(KEPT));
        for _ in 0..polls {
            if let Poll::Ready(ticket) = poll!(&mut giving) {
                giver.release_ticket(ticket.unwrap()).await.unwrap();
                giving = Box::pin(hold(&giver).await.into_ticket(KEPT));
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(giving);
        wait_until_free(&worker, "k").await;
        let ticket = give(&giver).await;
        let mut adopting = Box::pin(worker.adopt(ticket.clone()));
        for _ in 0..polls {
            if poll!(&mut adopting).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(adopting);
        // The server may not have executed the adoption. Then the ticket is still valid.
        let _ = worker.release_ticket(ticket).await;
        wait_until_free(&giver, "k").await;
    }
}

async fn an_adopter_in_another_namespace_gets_the_same_lock(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let giver = world.manager_with(LockManager::builder().namespace("shop")).await;
    let worker = world.manager().await;
    let adopted = worker.adopt(give(&giver).await).await.unwrap();
    assert_eq!(adopted.key(), "shop:p:k");
    assert!(!is_free(&giver, "k").await && is_free(&worker, "k").await);
    adopted.release().await.unwrap();
    assert!(is_free(&giver, "k").await);
}

async fn a_mistaken_ticket_is_refused(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, worker) = (world.manager().await, world.manager().await);
    let ticket = give(&giver).await;
    let other: LockTicket = ticket.to_string().replace("p:k", "p:other").parse().unwrap();
    let guessed: LockTicket = format!("lock-ticket {:032x}.1@h|ticket p:k", 7).parse().unwrap();
    let of_permit: LockTicket = format!("lock-ticket {:032x}.1{:010}{:010}@h|ticket p:k", 7, 1, 3).parse().unwrap();
    for wrong in [other, guessed, of_permit] {
        assert_lost(worker.adopt(wrong.clone()).await);
        assert_lost(worker.release_ticket(wrong).await);
    }
    assert!(is_free(&worker, "other").await);
    worker.adopt(ticket).await.unwrap().release().await.unwrap();
}

async fn a_body_runs_under_an_adopted_hold(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, adopter) = (world.manager().await, world.manager().await);
    let ticket = giver.lock("p", "k").timeout(LONG).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
    let again = ticket.clone();
    let body = async {
        assert!(!is_free(&giver, "k").await);
        // The body enters the lock that its own task holds.
        adopter.lock("p", "k").fenced(true).run(async { 42 }).await
    };
    assert_eq!(adopter.run_adopted(ticket, body).await.unwrap().unwrap(), 42);
    assert!(is_free(&giver, "k").await);
    let over = adopter.run_adopted(again, async { unreachable!("it was adopted") }).await.map(|(): ()| ());
    assert!(matches!(over, Err(LockError::Lost { ticket: true, completed: false, .. })), "{over:?}");
    assert_eq!((adopter.stats().held, adopter.stats().lost), (0, 0));
}

async fn a_body_under_an_adopted_hold_is_dropped_when_the_hold_is_lost(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, adopter) = (world.manager().await, world.manager().await);
    for forced in [false, true] {
        let ticket = giver.lock("p", "k").timeout(LONG).acquire().await.unwrap().into_ticket(KEPT).await.unwrap();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let body = async {
            let _dropped = Dropped(Arc::clone(&is_dropped));
            std::future::pending::<()>().await;
        };
        let running =
            adopter.run_adopted_with(ticket, |request| if forced { request } else { request.max_hold(SHORT) }, body);
        let force = async {
            sleep(SHORT / 2).await;
            if forced {
                assert!(giver.force_release("p", "k").await.unwrap());
            }
        };
        let (lost, ()) = tokio::join!(running, force);
        let is_as_told = match &lost {
            Err(LockError::Lost { completed: false, forced: by_force, max_hold, ticket: false, .. }) => {
                (*by_force, max_hold.is_some()) == (forced, !forced)
            }
            _ => false,
        };
        assert!(is_as_told && is_dropped.load(Ordering::SeqCst), "{lost:?}");
        wait_until_free(&giver, "k").await;
    }
}

async fn an_adopted_hold_that_is_replaced_does_not_count_as_lost(world: World) {
    if refuses_tickets(&world).await {
        return;
    }
    let (giver, adopter) = (world.manager().await, world.manager().await);
    // The giver's request lets itself be replaced, or the adopter's does, or neither.
    for (given, adopted, lost) in
        [(OnBusy::Replace, OnBusy::Wait, 0), (OnBusy::Wait, OnBusy::Replace, 0), (OnBusy::Wait, OnBusy::Wait, 1)]
    {
        let guard = giver.lock("p", "k").timeout(LONG).on_busy(given).acquire().await.unwrap();
        let ticket: LockTicket = guard.into_ticket(KEPT).await.unwrap().to_string().parse().unwrap();
        let before = adopter.stats().lost;
        let forever = std::future::pending::<()>();
        let export = adopter.run_adopted_with(ticket, |request| request.on_busy(adopted), forever);
        let newer = async {
            sleep(SHORT).await;
            giver.lock("p", "k").timeout(LONG).on_busy(OnBusy::Replace).run(async {}).await.unwrap();
        };
        let (replaced, ()) = tokio::join!(export, newer);
        assert!(matches!(replaced, Err(LockError::Lost { forced: true, .. })), "{replaced:?}");
        assert_eq!(adopter.stats().lost - before, lost, "{given:?} {adopted:?}");
    }
}
