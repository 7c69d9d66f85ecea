//! The spans around a wait and around a hold.

use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::spans::{Span, Spans};

const WAIT: &str = "cache_lock.wait";
const HOLD: &str = "cache_lock.hold";

fn last(spans: &Spans, name: &str) -> Span {
    spans.named(name).pop().unwrap_or_else(|| panic!("no span {name}"))
}

fn fields<'a>(span: &'a Span, names: &[&str]) -> Vec<&'a str> {
    names.iter().map(|name| span.field(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_wait_has_the_outcome_the_time_the_path_and_the_holder() {
    let spans = Spans::of_this_process();
    let locks = LockManager::builder().namespace("shop").label("north").in_memory();
    let request = || locks.lock("seckill:eu", &7).timeout(Duration::from_secs(3));
    let guard = request().acquire().await.unwrap();
    let wait = last(&spans, WAIT);
    assert!(wait.is_closed && wait.inside == 0 && wait.entered > 0, "{wait:?}");
    let names = ["lock.key", "lock.prefix", "lock.outcome", "lock.path", "lock.waited_ms", "lock.holder"];
    assert_eq!(fields(&wait, &names[..4]), ["shop:seckill:eu:7", "seckill:eu", "granted", "store"]);
    request().acquire().await.unwrap_err();
    let wait = last(&spans, WAIT);
    assert_eq!(fields(&wait, &names[2..]), ["busy", "", wait.field("lock.waited_ms"), "north"]);
    assert!(wait.field("lock.waited_ms").parse::<u64>().is_ok(), "{wait:?}");
    let next = tokio::spawn(request().acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(fields(&last(&spans, WAIT), &names[2..4]), ["granted", "hand-over"]);
    assert_eq!(fields(&last(&spans, HOLD), &names[..4]), ["shop:seckill:eu:7", "seckill:eu", "", "hand-over"]);
    drop(next);
    locks.shutdown().await;
    request().acquire().await.unwrap_err();
    assert_eq!(last(&spans, WAIT).field("lock.outcome"), "shut_down");
    assert!(spans.named(WAIT).iter().chain(&spans.named(HOLD)).all(|span| span.is_closed));
}

#[tokio::test(start_paused = true)]
async fn an_adopted_lock_has_its_spans_and_the_prefix_of_the_giver() {
    let spans = Spans::of_this_process();
    let locks = LockManager::builder().namespace("shop").in_memory();
    let other = LockManager::builder().namespace("elsewhere").in_memory_with(&locks).unwrap();
    let ticket =
        locks.lock("seckill:eu", &7).acquire().await.unwrap().into_ticket(Duration::from_mins(1)).await.unwrap();
    let text = ticket.to_string();
    let guard = other.adopt(text.parse().unwrap()).await.unwrap();
    let names = ["lock.key", "lock.prefix", "lock.outcome", "lock.path"];
    assert_eq!(fields(&last(&spans, WAIT), &names), ["shop:seckill:eu:7", "seckill:eu", "granted", "store"]);
    guard.release().await.unwrap();
    assert_eq!(fields(&last(&spans, HOLD), &names), ["shop:seckill:eu:7", "seckill:eu", "released", "store"]);
    other.adopt(ticket).await.unwrap_err();
    assert_eq!(last(&spans, WAIT).field("lock.outcome"), "lost");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_several_keys_names_the_busy_one_and_a_joining_reader_comes_from_the_task_before() {
    let spans = Spans::of_this_process();
    let locks = LockManager::builder().label("north").in_memory();
    let _held = locks.lock("p", &2).acquire().await.unwrap();
    let error = locks.lock_all("p", [1, 2, 3]).timeout(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert_eq!(error.key(), Some("p:2"));
    assert_eq!(fields(&last(&spans, WAIT), &["lock.key", "lock.holder"]), ["p:2", "north"]);
    let read = || locks.lock("read", "k").read().acquire();
    let (_one, _other) = (read().await.unwrap(), read().await.unwrap());
    assert_eq!(last(&spans, WAIT).field("lock.path"), "hand-over");
    assert_eq!(locks.stats().hand_overs, 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_polled_inside_of_the_span_of_its_hold_and_a_guard_is_not() {
    let spans = Spans::of_this_process();
    let locks = LockManager::in_memory();
    let inside = |name: &str| last(&spans, name).inside;
    let value = locks.lock("p", "k").run(async {
        assert_eq!((inside(HOLD), inside(WAIT)), (1, 0));
        tokio::task::yield_now().await;
        assert_eq!(inside(HOLD), 1);
        locks.lock("p", "k").run(async { assert_eq!(inside(HOLD), 1) }).await.unwrap();
        let nested = last(&spans, HOLD);
        assert_eq!(fields(&nested, &["lock.path", "lock.outcome"]), ["re-entry", "released"]);
        assert_eq!(last(&spans, WAIT).field("lock.path"), "re-entry");
        let holds = spans.named(HOLD).len();
        let inner = || locks.lock("p", "k").timeout(Duration::ZERO).run(tokio::task::yield_now());
        let (first, second) = tokio::join!(inner(), inner());
        first.unwrap();
        second.unwrap_err();
        assert_eq!(spans.named(HOLD).len(), holds + 1, "a call that does not enter must have no hold");
        5
    });
    assert_eq!(value.await.unwrap(), 5);
    let outer = &spans.named(HOLD)[0];
    assert!(outer.is_closed && outer.inside == 0 && outer.entered >= 2, "{outer:?}");
    assert_eq!(outer.field("lock.outcome"), "released");
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let hold = last(&spans, HOLD);
    assert!(!hold.is_closed && hold.entered == 0, "{hold:?}");
    guard.release().await.unwrap();
    assert!(last(&spans, HOLD).is_closed);
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_hold_says_how_it_ended() {
    let spans = Spans::of_this_process();
    let locks = LockManager::in_memory();
    let request = || locks.lock("p", "k").expire(Duration::from_secs(2)).renew(false);
    let outcome = || last(&spans, HOLD).field("lock.outcome").to_owned();
    request().acquire().await.unwrap().release().await.unwrap();
    assert_eq!(outcome(), "released");
    drop(request().acquire().await.unwrap());
    assert_eq!(outcome(), "dropped");
    let guard = request().acquire().await.unwrap();
    guard.lost().await;
    guard.release().await.unwrap_err();
    assert_eq!(outcome(), "lost");
    let error = request().run(std::future::pending::<()>()).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }));
    assert_eq!(outcome(), "lost");
}
