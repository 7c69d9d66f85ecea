//! A holder's note, and for how long it has had the lock.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use lock_runtime::{LockError, LockInfo, LockManager, LockRequest};
use tests::over_every_store;
use tests::patience::{NOISE, at_rest};
use tests::stores::World;
use tokio::time::sleep;

use crate::{LONG, SHORT};

over_every_store![
    a_note_follows_the_label_of_the_holder,
    each_lock_of_a_request_has_its_note,
    an_adopter_has_a_note_of_its_own,
    a_note_that_is_too_long_or_steers_a_terminal_is_refused,
    a_look_tells_for_how_long_the_lock_was_held,
    the_manager_that_holds_a_lock_tells_of_the_task_that_has_it_now,
];

const NOTE: &str = "50 % of ada's import|no. 7/ü: {a@b}";

async fn seen(manager: &LockManager, key: &str) -> LockInfo {
    manager.inspect("p", key).await.unwrap().expect("it is held")
}

async fn a_note_follows_the_label_of_the_holder(world: World) {
    let north = world.manager_with(LockManager::builder().label("north/1")).await;
    let south = world.manager().await;
    let guard = north.lock("p", "k").note(NOTE).acquire().await.unwrap();
    for manager in [&north, &south] {
        let seen = seen(manager, "k").await;
        assert_eq!((seen.holder.as_deref(), seen.note.as_deref()), (Some("north/1"), Some(NOTE)));
        for timeout in [Duration::ZERO, SHORT] {
            let busy = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
            let LockError::Timeout { holder, note, .. } = &busy else { unreachable!("{busy:?}") };
            assert_eq!((holder.as_deref(), note.as_deref()), (Some("north/1"), Some(NOTE)));
            assert!(busy.to_string().ends_with(&format!("(held by north/1: {NOTE})")), "{busy}");
        }
    }
    guard.release().await.unwrap();
    let _guard = north.lock("p", "k").note("").acquire().await.unwrap();
    assert_eq!(seen(&south, "k").await.note, None);
    let busy = south.lock("p", "k").timeout(SHORT).acquire().await.unwrap_err();
    assert!(matches!(&busy, LockError::Timeout { note: None, .. }), "{busy:?}");
}

async fn each_lock_of_a_request_has_its_note(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let both = manager.lock_all("p", ["a", "b"]).note("both").acquire().await.unwrap();
    for key in ["a", "b"] {
        assert_eq!(seen(&other, key).await.note.as_deref(), Some("both"));
        assert_eq!(seen(&manager, key).await.note.as_deref(), Some("both"));
    }
    drop(both);
    if !world.is_quorum() {
        let shared = [LockRequest::read as fn(_) -> _, |request: LockRequest| request.permits(2)];
        for (share, key) in shared.into_iter().zip(["c", "d"]) {
            let _guard = share(manager.lock("p", key).note("shared")).acquire().await.unwrap();
            assert_eq!(seen(&other, key).await.note.as_deref(), Some("shared"));
            assert_eq!(seen(&manager, key).await.note.as_deref(), Some("shared"));
        }
    }
}

async fn an_adopter_has_a_note_of_its_own(world: World) {
    if world.is_quorum() {
        return;
    }
    let (giver, adopter) = (world.manager().await, world.manager().await);
    let guard = giver.lock("p", "k").note("given").acquire().await.unwrap();
    let ticket = guard.into_ticket(LONG).await.unwrap();
    let waits = seen(&giver, "k").await;
    assert_eq!((waits.note, waits.held_for), (None, None), "nobody holds it");
    let _guard = adopter.adopt_with(ticket, |request| request.note("adopted")).await.unwrap();
    assert_eq!(seen(&giver, "k").await.note.as_deref(), Some("adopted"));
}

async fn a_note_that_is_too_long_or_steers_a_terminal_is_refused(world: World) {
    let manager = world.manager().await;
    let before = at_rest("the servers are greeted", LONG, || manager.stats().commands).await;
    for note in ["x".repeat(129), "a\nb".to_owned(), "\u{1b}[31m".to_owned()] {
        let refused = manager.lock("p", "k").note(&note).acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::InvalidSetting { setting: "note", .. }), "{refused:?}");
    }
    assert_eq!(manager.stats().commands, before);
    let longest = " ".repeat(128);
    let _guard = manager.lock("p", "k").note(&longest).acquire().await.unwrap();
    assert_eq!(seen(&manager, "k").await.note, Some(longest));
}

async fn a_look_tells_for_how_long_the_lock_was_held(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    let guard = north.lock("p", "k").at_least(LONG).acquire().await.unwrap();
    sleep(SHORT).await;
    for manager in [&north, &south] {
        let held_for = seen(manager, "k").await.held_for.expect("it is known");
        assert!(held_for >= SHORT && held_for < SHORT + NOISE, "{held_for:?}");
    }
    guard.release().await.unwrap();
    let rests = seen(&south, "k").await;
    assert_eq!((rests.rests, rests.held_for), (true, None));
}

async fn the_manager_that_holds_a_lock_tells_of_the_task_that_has_it_now(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let first = manager.lock("p", "k").note("first").acquire().await.unwrap();
    sleep(SHORT).await;
    let mut second = pin!(manager.lock("p", "k").note("second").timeout(LONG).acquire());
    assert!(poll!(&mut second).is_pending());
    drop(first);
    let _second = second.await.unwrap();
    let seen_here = seen(&manager, "k").await;
    assert_eq!(seen_here.note.as_deref(), Some("second"));
    assert!(seen_here.held_for.is_some_and(|held_for| held_for < SHORT), "{seen_here:?}");
    // The lease is the one of the first task.
    let seen_there = seen(&other, "k").await;
    assert_eq!(seen_there.note.as_deref(), Some("first"));
    assert!(seen_there.held_for.is_some_and(|held_for| held_for >= SHORT), "{seen_there:?}");
    let busy = manager.lock("p", "k").timeout(SHORT).acquire().await.unwrap_err();
    assert!(matches!(&busy, LockError::Timeout { note: Some(note), .. } if note == "second"), "{busy:?}");
}
