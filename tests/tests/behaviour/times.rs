//! Every duration that a user can set, from zero to `Duration::MAX`: it works, or the error says why not.

use std::ops::RangeInclusive;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::{Builder, LockError, LockManager, LockRequest, cache_lock};
use tests::over_every_store;
use tests::stores::World;
use tokio::time::timeout;

use crate::{LONG, SHORT};

over_every_store![
    every_time_of_a_manager_works_or_is_refused_in_words,
    every_time_of_a_request_works_or_is_refused_in_words,
    every_time_of_an_attribute_works_or_is_refused_in_words,
    the_longest_times_outlast_servers_that_are_silent,
];

const NONE: Duration = Duration::ZERO;
const NANO: Duration = Duration::from_nanos(1);
const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_hours(1);
const YEAR: Duration = Duration::from_hours(365 * 24);

/// Both sides of each bound, and durations that overflow when they are multiplied or added to an instant.
const TIMES: [Duration; 13] = [
    NONE,
    NANO,
    MILLI,
    // Longer than a hold takes on a busy machine; a shorter `max_hold` would end it.
    Duration::from_secs(30),
    HOUR,
    Duration::from_nanos(3_600_000_000_001),
    YEAR,
    Duration::from_nanos(31_536_000_000_000_001),
    Duration::from_millis(u64::MAX),
    Duration::from_secs(u64::MAX / 4),
    Duration::from_secs(u64::MAX / 2 + 1),
    Duration::from_secs(u64::MAX),
    Duration::MAX,
];

/// With a shorter time a busy machine may fail. Then the error is about the time, not about the setting.
const ENOUGH: Duration = Duration::from_secs(1);

/// A setting, and the durations that it accepts.
struct Time<S> {
    name: &'static str,
    set: S,
    accepted: RangeInclusive<Duration>,
}

type OfManager = fn(Builder, Duration) -> Builder;
type OfRequest = fn(LockRequest, Duration) -> LockRequest;

const NOTHING: RangeInclusive<Duration> = Duration::MAX..=NONE;

fn longest_lease(world: &World) -> Duration {
    if world.is_quorum() { HOUR } else { YEAR }
}

fn longest_linger(world: &World) -> Duration {
    if world.is_quorum() { NONE } else { Duration::from_secs(2) }
}

fn times_of_a_manager(world: &World) -> [Time<OfManager>; 12] {
    let time = |name, set: OfManager, accepted| Time { name, set, accepted };
    let expire = Duration::from_secs(30);
    // On a quorum the longest lease is an hour, which includes the grace.
    let grace = if world.is_quorum() { HOUR.saturating_sub(expire) } else { HOUR };
    let has_replicas = !world.is_quorum() && !world.servers().is_empty();
    let replicas = if has_replicas { NANO..=Duration::from_millis(250) } else { NOTHING };
    [
        time("command_timeout", Builder::command_timeout, MILLI..=HOUR),
        time("connect_timeout", Builder::connect_timeout, MILLI..=HOUR),
        time("default_timeout", Builder::default_timeout, NONE..=Duration::MAX),
        time("default_expire", Builder::default_expire, Duration::from_millis(10)..=longest_lease(world)),
        time("default_max_hold", Builder::default_max_hold, Duration::from_millis(10)..=YEAR),
        time("max_lease", Builder::max_lease, expire..=YEAR),
        time("grace", Builder::grace, NONE..=grace),
        time("linger", Builder::linger, NONE..=longest_linger(world)),
        time("fail_fast", Builder::fail_fast, NONE..=Duration::MAX),
        time("drain", Builder::drain, NONE..=Duration::MAX),
        time("warn_held_for", Builder::warn_held_for, NONE..=Duration::MAX),
        time("min_replicas", |builder, time| builder.min_replicas(1, time), replicas),
    ]
}

fn times_of_a_request(world: &World) -> [Time<OfRequest>; 5] {
    let time = |name, set: OfRequest, accepted| Time { name, set, accepted };
    let lease = longest_lease(world);
    [
        time("timeout", LockRequest::timeout, NONE..=Duration::MAX),
        time("expire", LockRequest::expire, Duration::from_millis(10)..=lease),
        time("linger", LockRequest::linger, NONE..=longest_linger(world)),
        time("max_hold", LockRequest::max_hold, Duration::from_millis(10)..=YEAR),
        // The lease must be longer by a command timeout and the allowance for clock drift.
        time("at_least", LockRequest::at_least, NONE..=lease / 2),
    ]
}

/// Fails if any thread has panicked since the last call. Nothing else reports a panic in one of the library's tasks.
fn assert_no_panic(what: &str) {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            usual(panic);
        }));
    });
    assert_eq!(PANICS.swap(0, Ordering::SeqCst), 0, "a task panicked: {what}");
}

impl<S> Time<S> {
    fn assert(&self, time: Duration, outcome: Option<Result<(), LockError>>) {
        let what = format!("{} of {time:?}", self.name);
        assert_no_panic(&what);
        let outcome = outcome.unwrap_or_else(|| panic!("{what}: no end"));
        let is_refused = matches!(outcome, Err(LockError::InvalidSetting { .. }));
        assert_eq!(is_refused, !self.accepted.contains(&time), "{what}: {outcome:?}");
        if let Err(error) = outcome {
            assert!(!is_refused || error.to_string().contains(self.name), "{what}: {error}");
            assert!(is_refused || time < ENOUGH, "{what}: {error:?}");
        }
    }
}

/// Uses everything that takes a duration: a hold, a waiter behind it, and an extension.
async fn lock(request: impl Fn() -> LockRequest) -> Result<(), LockError> {
    let guard = request().acquire().await?;
    let waiter = timeout(Duration::from_millis(10), request().acquire()).await;
    assert!(!matches!(waiter, Ok(Ok(_))), "both have it");
    guard.extend(Duration::from_millis(500)).await?;
    guard.release().await
}

async fn every_time_of_a_manager_works_or_is_refused_in_words(world: World) {
    assert_no_panic("before");
    for setting in times_of_a_manager(&world) {
        for time in TIMES {
            let trial = async {
                let manager = world.try_manager_with((setting.set)(LockManager::builder(), time)).await?;
                let outcome = lock(|| manager.lock("p", setting.name)).await;
                manager.shutdown().await;
                outcome
            };
            setting.assert(time, timeout(LONG, trial).await.ok());
        }
    }
}

async fn every_time_of_a_request_works_or_is_refused_in_words(world: World) {
    assert_no_panic("before");
    let manager = world.manager().await;
    for setting in times_of_a_request(&world) {
        for (number, time) in TIMES.into_iter().enumerate() {
            let key = format!("{}-{number}", setting.name);
            // A new key for each trial, because `at_least` may keep the old one busy.
            let one = lock(|| (setting.set)(manager.lock("p", &key), time));
            setting.assert(time, timeout(LONG, one).await.ok());
            let all = [format!("{key}-a"), format!("{key}-b")];
            let all = lock(|| (setting.set)(manager.lock_all("p", all.clone()), time));
            setting.assert(time, timeout(LONG, all).await.ok());
            if !world.is_quorum() && setting.name != "linger" {
                let shared = lock(|| (setting.set)(manager.lock("shared", &key).permits(1), time));
                setting.assert(time, timeout(LONG, shared).await.ok());
            }
        }
    }
    for (number, time) in TIMES.into_iter().enumerate() {
        let extend = async {
            let guard = manager.lock("p", &number).acquire().await?;
            let extended = guard.extend(time).await;
            guard.release().await?;
            extended
        };
        let accepted = Duration::from_millis(10)..=longest_lease(&world);
        Time { name: "lease", set: (), accepted }.assert(time, timeout(LONG, extend).await.ok());
    }
}

#[cache_lock(prefix = "timeout", key = place, manager = locks, timeout = time)]
async fn of_timeout(locks: &LockManager, place: usize, time: Duration) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "expire", key = place, manager = locks, expire = time)]
async fn of_expire(locks: &LockManager, place: usize, time: Duration) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "linger", key = place, manager = locks, linger = time)]
async fn of_linger(locks: &LockManager, place: usize, time: Duration) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "max_hold", key = place, manager = locks, max_hold = time)]
async fn of_max_hold(locks: &LockManager, place: usize, time: Duration) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "at_least", key = place, manager = locks, at_least = time)]
async fn of_at_least(locks: &LockManager, place: usize, time: Duration) -> Result<(), LockError> {
    Ok(())
}

#[cache_lock(prefix = "in_seconds", key = seconds, manager = locks, timeout_s = seconds, max_hold_s = seconds)]
async fn in_seconds(locks: &LockManager, seconds: u64) -> Result<(), LockError> {
    Ok(())
}

async fn every_time_of_an_attribute_works_or_is_refused_in_words(world: World) {
    assert_no_panic("before");
    let manager = world.manager().await;
    let [wait, expire, linger, max_hold, at_least] = times_of_a_request(&world);
    for (place, time) in TIMES.into_iter().enumerate() {
        wait.assert(time, timeout(LONG, of_timeout(&manager, place, time)).await.ok());
        expire.assert(time, timeout(LONG, of_expire(&manager, place, time)).await.ok());
        linger.assert(time, timeout(LONG, of_linger(&manager, place, time)).await.ok());
        max_hold.assert(time, timeout(LONG, of_max_hold(&manager, place, time)).await.ok());
        at_least.assert(time, timeout(LONG, of_at_least(&manager, place, time)).await.ok());
        let seconds = Duration::from_secs(time.as_secs());
        max_hold.assert(seconds, timeout(LONG, in_seconds(&manager, time.as_secs())).await.ok());
    }
}

async fn the_longest_times_outlast_servers_that_are_silent(world: World) {
    assert_no_panic("before");
    for fail_fast in [NONE, Duration::MAX] {
        let builder = LockManager::builder().command_timeout(HOUR).connect_timeout(HOUR).fail_fast(fail_fast);
        let builder = builder.default_timeout(Duration::MAX).drain(Duration::MAX).warn_held_for(Duration::MAX);
        let manager = world.manager_with(builder).await;
        manager.lock("p", "before").acquire().await.unwrap().release().await.unwrap();
        world.servers().iter().for_each(|server| server.freeze());
        for _ in 0..3 {
            let request = manager.lock("p", "silent").timeout(Duration::from_millis(30)).acquire();
            let outcome = timeout(LONG, request).await.expect("it has a timeout");
            assert_eq!(outcome.is_err(), !world.servers().is_empty(), "{outcome:?}");
        }
        world.servers().iter().for_each(|server| server.thaw());
        // With `fail_fast`, the servers count as unreachable until one of them answers.
        let again = async {
            loop {
                match manager.lock("p", "after").timeout(SHORT).acquire().await {
                    Ok(guard) => return guard.release().await,
                    Err(error) => assert!(matches!(error, LockError::Backend { .. }), "{error:?}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, again).await.expect("the servers are back").unwrap();
        assert_no_panic("silent servers");
    }
}
